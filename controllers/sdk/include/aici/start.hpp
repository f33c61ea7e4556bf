// Start the C++ runtime of a guest.
#pragma once

namespace aici {

// Run global constructors unless the runtime has called _initialize (upstream's runtime never does). Every export that
// may be called first calls this function; further calls do nothing.
void start();

}  // namespace aici
