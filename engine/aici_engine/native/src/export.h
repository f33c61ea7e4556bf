#pragma once

/* All else is hidden: what is exported is declared in Python too. */
#define AICI_EXPORT __attribute__((visibility("default")))
