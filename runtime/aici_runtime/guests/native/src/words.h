/* The words of a worker slot, shared with the stepper's process, and futexes on them. */
#pragma once

#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAIT_FOR_EVER NULL

static inline uint32_t load(const uint8_t *slot, uint32_t offset) {
    return __atomic_load_n((const uint32_t *)(const void *)(slot + offset), __ATOMIC_ACQUIRE);
}

/* Store a word after all data written before. */
static inline void store(uint8_t *slot, uint32_t offset, uint32_t word) {
    __atomic_store_n((uint32_t *)(void *)(slot + offset), word, __ATOMIC_RELEASE);
}

static inline void wake(uint8_t *slot, uint32_t offset) {
    syscall(SYS_futex, slot + offset, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Sleep until the word differs from `word`. */
static inline void wait_while(uint8_t *slot, uint32_t offset, uint32_t word) {
    while (load(slot, offset) == word) {
        syscall(SYS_futex, slot + offset, FUTEX_WAIT, word, WAIT_FOR_EVER, NULL, 0);
    }
}
