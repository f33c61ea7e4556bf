// Starting the C++ runtime of a guest.
#pragma once

namespace aici {

// Runs global constructors unless the host has called _initialize (the original host never does). Every export that may
// be called first calls this; further calls do nothing.
void start();

}  // namespace aici
