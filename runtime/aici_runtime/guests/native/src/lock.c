/* The lock between the loop and the watchdog's thread, which takes the lock while Python runs. */
#include "guest_loop.h"
#include "words.h"

EXPORT void aici_lock_guests(uint32_t *lock) {
    uint32_t free = 0;
    if (__atomic_compare_exchange_n(lock, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return;
    }
    while (__atomic_exchange_n(lock, 2, __ATOMIC_ACQUIRE) != 0) {
        syscall(SYS_futex, lock, FUTEX_WAIT_PRIVATE, 2, WAIT_FOR_EVER, NULL, 0);
    }
}

EXPORT void aici_unlock_guests(uint32_t *lock) {
    if (__atomic_exchange_n(lock, 0, __ATOMIC_RELEASE) == 2) {
        syscall(SYS_futex, lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}
