#pragma once

/* Symbols are hidden by default. Exported functions are declared in ../bindings.py or sample/native.py as well. */
#define AICI_EXPORT __attribute__((visibility("default")))
