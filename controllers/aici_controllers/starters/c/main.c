// The answer is "yes" or "no", followed by a forced full stop. In C, on the bare interface: aici.h describes the callbacks
// and their answers.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aici.h"

enum { NUM_WORDS = 2, MAX_TOKENS = 16 };
static const char *const WORDS[NUM_WORDS] = {"yes", "no"};

typedef struct {
  uint32_t ids[MAX_TOKENS];
  uint32_t num;
} Tokens;

static Tokens words[NUM_WORDS], full_stop;
static uint32_t possible = (1u << NUM_WORDS) - 1;  // one bit per word: the word begins with the tokens so far
static uint32_t num_taken = 0;                     // tokens so far
static int is_answered = 0;
static uint32_t *mask, mask_bytes;

static uint32_t address(const void *pointer) { return (uint32_t)(uintptr_t)pointer; }
static void answer(const char *json) { aici_host_return_process_result(address(json), (uint32_t)strlen(json)); }

static void fail(const char *why) {
  puts(why);
  aici_host_stop();
}

static Tokens tokenize(const char *text) {
  Tokens tokens = {.num = 0};
  uint32_t blob = aici_host_tokenize(address(text), (uint32_t)strlen(text));
  tokens.num = aici_host_read_blob(blob, address(tokens.ids), sizeof tokens.ids) / 4;
  if (tokens.num > MAX_TOKENS) fail("a word has too many tokens");
  return tokens;
}

// The numbers in "tokens":[...] of the argument of this callback.
static Tokens tokens_of_argument(void) {
  static char json[4096];
  Tokens tokens = {.num = 0};
  uint32_t size = aici_host_read_blob(aici_host_process_arg(), address(json), sizeof json - 1);
  if (size >= sizeof json) fail("more tokens than this controller expects");
  json[size] = 0;
  const char *at = strstr(json, "\"tokens\":[");
  if (!at) fail("the argument has no tokens");
  for (at += strlen("\"tokens\":["); *at && *at != ']';) {
    char *end;
    if (tokens.num == MAX_TOKENS) fail("more tokens than this controller expects");
    tokens.ids[tokens.num++] = (uint32_t)strtoul(at, &end, 10);
    at = *end == ',' ? end + 1 : end;
  }
  return tokens;
}

void aici_init(void) {}

uint32_t aici_create(void) {
  uint32_t header[AICI_TRIE_HEADER_SIZE / 4];
  aici_host_read_blob(aici_host_token_trie(), address(header), sizeof header);
  mask_bytes = (header[5] + 31) / 32 * 4;  // header[5]: size of the vocabulary
  mask = malloc(mask_bytes);
  if (!mask) fail("out of memory");
  for (int i = 0; i < NUM_WORDS; i++) words[i] = tokenize(WORDS[i]);
  full_stop = tokenize(".");
  return 0;
}

void aici_init_prompt(uint32_t self) {
  (void)self;
  answer("{}");
}

// Before each token: force text, wait, fork, stop or continue.
void aici_pre_process(uint32_t self) {
  (void)self;
  char json[256] = "{\"num_forks\":1,\"suspend\":false,\"ff_tokens\":[";
  if (is_answered)
    for (uint32_t i = 0; i < full_stop.num; i++)
      snprintf(json + strlen(json), sizeof json - strlen(json), "%s%u", i ? "," : "", (unsigned)full_stop.ids[i]);
  strncat(json, "]}", sizeof json - strlen(json) - 1);
  answer(json);
}

// While the model computes: which tokens may come next.
void aici_mid_process(uint32_t self) {
  (void)self;
  memset(mask, 0, mask_bytes);
  for (int i = 0; i < NUM_WORDS; i++)
    if (possible >> i & 1) {
      uint32_t token = words[i].ids[num_taken];
      mask[token / 32] |= 1u << (token % 32);
    }
  aici_host_return_logit_bias(address(mask));
  answer("{\"SampleWithBias\":{}}");
}

// After each token, sampled or forced: whether to stop.
void aici_post_process(uint32_t self) {
  (void)self;
  Tokens tokens = tokens_of_argument();
  int stop = is_answered;
  for (uint32_t t = 0; t < tokens.num && !is_answered; t++, num_taken++)
    for (int i = 0; i < NUM_WORDS; i++) {
      if (!(possible >> i & 1)) continue;
      if (words[i].ids[num_taken] != tokens.ids[t]) {
        possible &= ~(1u << i);
      } else if (num_taken + 1 == words[i].num) {
        is_answered = 1;
        printf("the answer is %s\n", WORDS[i]);
      }
    }
  answer(stop ? "{\"stop\":true}" : "{\"stop\":false}");
}
