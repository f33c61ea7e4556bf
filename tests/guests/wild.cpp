// Passes pointers and lengths outside its memory to host functions. The argument is a digit that selects the function.
#include "aici/controller.hpp"

struct Wild : aici::Controller {
  std::vector<char> arg = aici::module_arg();
  aici::MidResult mid_process(aici::Tokens) override {
    constexpr uint32_t FAR = 0xFFFFFFF0;
    switch (arg.empty() ? '0' : arg[0]) {
      case '0': aici_host_read_blob(aici_host_token_trie(), FAR, 64); break;
      case '1': aici_host_tokenize(FAR, 64); break;
      case '2': aici_host_return_logit_bias(FAR); break;
      case '3': aici_host_return_process_result(FAR, 64); break;
      case '4': aici_host_storage_cmd(FAR, 64); break;
      case '5': aici_host_read_blob(4711, 1024, 64); break;
      case '6': aici::print({reinterpret_cast<const char*>(FAR), 64}); break;
      default: aici_host_return_process_result(1024, 0xFFFFFFFF);
    }
    aici::print("survived\n");
    return aici::MidResult::stop();
  }
};
AICI_EXPOSE(Wild)
