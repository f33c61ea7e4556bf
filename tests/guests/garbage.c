// Answers mid_process with its argument, which is not JSON (by default). In C, against the bare ABI.
#include <string.h>

#include "aici.h"

static char text[4096] = "{\"SampleWithBias\":";

static void answer(const char *json) { aici_host_return_process_result((uint32_t)(uintptr_t)json, (uint32_t)strlen(json)); }

void aici_init(void) {}
uint32_t aici_create(void) {
  uint32_t len = aici_host_read_blob(aici_host_module_arg(), (uint32_t)(uintptr_t)text, sizeof(text) - 1);
  if (len > 0 && len < sizeof(text)) text[len] = 0;
  return 0;
}
void aici_init_prompt(uint32_t self) { (void)self, answer("{}"); }
void aici_pre_process(uint32_t self) { (void)self, answer("{\"num_forks\":1,\"suspend\":false,\"ff_tokens\":[]}"); }
void aici_mid_process(uint32_t self) { (void)self, answer(text); }
void aici_post_process(uint32_t self) { (void)self, answer("{\"stop\":false}"); }
