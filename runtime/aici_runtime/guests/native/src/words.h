/* The words of a worker slot, shared with the stepper's process, futexes on them, and numbers in decimal. */
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

/* Write a number in decimal. Return the end. */
static inline uint8_t *put_number(uint8_t *to, uint64_t number) {
    uint8_t digits[20];
    uint32_t count = 0;
    do {
        digits[count++] = (uint8_t)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    while (count != 0) {
        *to++ = digits[--count];
    }
    return to;
}
