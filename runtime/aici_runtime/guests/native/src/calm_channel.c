/* The engine's end of a usual turn: write the message, and read the answer. `calm_channel.py` describes the functions;
   `turn_message.py` is the reference. */
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>

#include "guest_loop.h"
#include "turn_message.h"

struct calm_channel {
    int (*sem_wait)(void *semaphore); /* of the libc that Python has loaded */
    int (*sem_trywait)(void *semaphore);
    int (*sem_post)(void *semaphore);
    struct mailbox requests, responses;
    uint32_t micros[MAX_OPS];
};

enum state { NOT_THERE, USUAL, NOT_USUAL };

static uint8_t *put(uint8_t *to, const void *from, size_t length) {
    memcpy(to, from, length);
    return to + length;
}

static uint8_t *put_same(uint8_t *to, uint32_t word, uint32_t count) {
    for (uint32_t k = 0; k < count; k++) {
        to = put(to, &word, sizeof word);
    }
    return to;
}

/* Send a turn: `count` sequences, each told of one token and asked for a mask. `words`: the ids, then the tokens.
   `most_s`: the patience; negative without. Return 0, with nothing sent, if the mailbox has no room. */
EXPORT int32_t aici_send_calm(const struct calm_channel *channel, const uint32_t *words, uint32_t count, double most_s,
                              double hurried_s) {
    const struct mailbox *mailbox = &channel->requests;
    struct header header = {
        .magic = MAGIC, .posts = count, .tokens = count, .asked = count, .ops = count, .hurried = NO_PATIENCE,
        .core = (uint32_t)sched_getcpu()}; /* -1, on failure, is NO_CORE */
    size_t row = 4 * (size_t)count, length = sizeof header + 6 * row;
    if (4 + length > mailbox->size || channel->sem_trywait(mailbox->writable) != 0) {
        return 0;
    }
    if (most_s >= 0) {
        header.hurried = 0;
        memcpy(header.most_s, &most_s, sizeof most_s);
        memcpy(header.hurried_s, &hurried_s, sizeof hurried_s);
    }
    uint32_t message_length = (uint32_t)length;
    uint8_t *to = put(mailbox->memory, &message_length, sizeof message_length);
    to = put(to, &header, sizeof header);
    to = put(to, words, row);
    to = put_same(to, 0, count); /* removed tokens */
    to = put_same(to, 1, count); /* appended tokens */
    to = put(to, words + count, row);
    to = put(to, words, row); /* asked */
    put(to, words, row);      /* ops */
    channel->sem_post(mailbox->readable);
    return 1;
}

/* Read a usual answer, the microseconds of `count` sequences. An answer that is not usual stays in the mailbox.
   `waits`: wait for the answer, or for a signal. */
EXPORT int32_t aici_receive_calm(struct calm_channel *channel, uint32_t count, int32_t waits) {
    const struct mailbox *mailbox = &channel->responses;
    if (count > MAX_OPS) {
        return NOT_USUAL;
    }
    if ((waits ? channel->sem_wait : channel->sem_trywait)(mailbox->readable) != 0) {
        return NOT_THERE;
    }
    struct answer_head expected = {MAGIC, count};
    uint32_t length, empty = 0, is_usual;
    memcpy(&length, mailbox->memory, sizeof length);
    is_usual = length == sizeof expected + 4 * count && 4 + (size_t)length <= mailbox->size &&
               memcmp(mailbox->memory + 4, &expected, sizeof expected) == 0;
    if (is_usual) {
        memcpy(channel->micros, mailbox->memory + 4 + sizeof expected, 4 * (size_t)count);
    }
    for (uint32_t k = 0; is_usual && k < count; k++) {
        is_usual = channel->micros[k] != UINT32_MAX;
    }
    if (!is_usual) {
        channel->sem_post(mailbox->readable);
        return NOT_USUAL;
    }
    memcpy(mailbox->memory, &empty, sizeof empty);
    channel->sem_post(mailbox->writable);
    return USUAL;
}
