/* Wait for requests and answer them. Returns to Python for a request, or anything else, that is not usual. */
#include "guest_loop.h"
#include "words.h"

#define LEAVING 1

EXPORT uint32_t aici_guest_loop_abi(void) { return AICI_GUEST_LOOP_ABI; }

/* Serve a guest with a process of its own, until a request is for Python. */
EXPORT void aici_serve_guest(struct host *host, struct guest *guest) {
    for (;;) {
        wait_while(guest->slot, host->layout.request, 0);
        if (serve(host, guest) == FOR_PYTHON) {
            return;
        }
        wake(guest->slot, host->layout.response);
    }
}

/* Serve the guests of a pool. Return the index of a guest whose request is for Python; -1 when the pool itself has a
   request, a guest has come or a guest is to leave. */
EXPORT int32_t aici_serve_pool(struct host *host, struct pool *pool) {
    for (;;) {
        if (!pool->in_round) {
            wait_while(pool->slot, host->layout.bell, pool->heard);
            pool->heard = load(pool->slot, host->layout.bell);
            pool->in_round = 1;
        }
        if (load(pool->slot, host->layout.request) != 0 || __atomic_load_n(&pool->has_news, __ATOMIC_ACQUIRE) != 0) {
            return -1;
        }
        for (uint32_t k = 0; k < pool->num_guests; k++) {
            struct guest *guest = pool->guests[k];
            /* The watchdog, which comes after the word `leave` was set, sees a busy guest; or the loop sees the word. */
            __atomic_store_n(&guest->is_busy, 1, __ATOMIC_RELAXED);
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
            int is_leaving = load(guest->slot, host->layout.leave) == LEAVING;
            int has_request = load(guest->slot, host->layout.request) != 0;
            if (!is_leaving && has_request) {
                if (serve(host, guest) == FOR_PYTHON) {
                    return (int32_t)k;
                }
                continue;
            }
            __atomic_store_n(&guest->is_busy, 0, __ATOMIC_RELEASE);
            if (is_leaving) {
                return -1; /* first: a leaving guest gets no further bell, and nobody waits for its answer */
            }
        }
        store(pool->slot, host->layout.answered, (load(pool->slot, host->layout.answered) + 1) & 0x7FFFFFFF);
        wake(pool->slot, host->layout.answered);
        pool->in_round = 0;
    }
}
