/* The host functions that guests call in every step. While the loop does not run a guest, and for everything but the
   usual, each is the function in Python (`guests/host_functions.py`). */
#include <string.h>

#include "guest_loop.h"

__thread struct guest *running;

/* Call the function in Python. The loop then leaves the answer to Python: the function may have written a log. */
static void *in_python(struct host_function *function, void *caller, value *values, size_t num_values) {
    struct host *host = function->host;
    if (running != NULL && !host->has_used_python) {
        host->has_used_python = 1;
        host->attend(running->number);
    }
    return function->python(NULL, caller, values, num_values);
}

static void *out_of_range(struct host *host, uint32_t pointer, uint32_t length) {
    value values[2] = {{.i32 = pointer}, {.i32 = length}};
    host->has_used_python = 1;
    host->attend(running->number);
    return host->refuse(NULL, NULL, values, 2);
}

/* Return the bytes of the guest's memory, which never moves; NULL if the memory ends before. */
static uint8_t *view(struct host *host, uint32_t pointer, uint32_t length) {
    struct guest *guest = running;
    size_t end = (size_t)pointer + length;
    if (length != 0 && end > host->wasmtime.memory_data_size(guest->context, guest->memory)) {
        return NULL;
    }
    return guest->memory_data + pointer;
}

EXPORT void *aici_guest_other(void *env, void *caller, value *values, size_t num_values) {
    return in_python(env, caller, values, num_values);
}

EXPORT void *aici_guest_read_blob(void *env, void *caller, value *values, size_t num_values) {
    struct host *host = ((struct host_function *)env)->host;
    uint32_t size = values[2].i32;
    if (running == NULL || values[0].i32 != host->process_arg) {
        return in_python(env, caller, values, num_values);
    }
    if (size != 0) {
        uint32_t length = size < host->argument_len ? size : (uint32_t)host->argument_len;
        uint8_t *to = view(host, values[1].i32, length);
        if (to == NULL) {
            return out_of_range(host, values[1].i32, length);
        }
        memcpy(to, host->argument, length);
    }
    values[0].i32 = (uint32_t)host->argument_len;
    return NULL;
}

EXPORT void *aici_guest_process_arg(void *env, void *caller, value *values, size_t num_values) {
    (void)caller, (void)num_values;
    values[0].i32 = ((struct host_function *)env)->host->process_arg;
    return NULL;
}

EXPORT void *aici_guest_self_seq_id(void *env, void *caller, value *values, size_t num_values) {
    if (running == NULL) {
        return in_python(env, caller, values, num_values);
    }
    values[0].i32 = running->seq_id;
    return NULL;
}

EXPORT void *aici_guest_return_logit_bias(void *env, void *caller, value *values, size_t num_values) {
    struct host *host = ((struct host_function *)env)->host;
    uint32_t length = host->format.mask_bytes;
    if (running == NULL || !host->takes_mask) {
        return in_python(env, caller, values, num_values);
    }
    const uint8_t *bits = view(host, values[0].i32, length);
    if (bits == NULL) {
        return out_of_range(host, values[0].i32, length);
    }
    if (host->has_mask) {
        for (uint32_t k = 0; k < length; k++) {
            host->mask[k] |= bits[k];
        }
    } else {
        memcpy(host->mask, bits, length);
        host->has_mask = 1;
    }
    return NULL;
}

EXPORT void *aici_guest_return_process_result(void *env, void *caller, value *values, size_t num_values) {
    struct host *host = ((struct host_function *)env)->host;
    uint32_t length = values[1].i32;
    if (running == NULL || length > host->result_max) {
        return in_python(env, caller, values, num_values);
    }
    const uint8_t *result = view(host, values[0].i32, length);
    if (result == NULL) {
        return out_of_range(host, values[0].i32, length);
    }
    memcpy(host->result, result, length);
    host->result_len = length;
    host->has_result = 1;
    return NULL;
}
