#include "aici/controller.hpp"

#include "aici/json.hpp"

namespace aici {

bool Controller::post_process(Tokens tokens, uint32_t) {
  TokenId eos = eos_token();
  for (TokenId token : tokens)
    if (token == eos) return true;
  return false;
}

namespace detail {
namespace {

uint32_t address(const void* pointer) { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pointer)); }

void give_back(std::string_view json) {
  aici_host_return_process_result(address(json.data()), static_cast<uint32_t>(json.size()));
}

std::string_view field(const std::vector<char>& arg, std::string_view key) {
  std::string_view text(arg.data(), arg.size());
  std::optional<std::string_view> value = json::get(text, key);
  if (!value) fail((Text("the host's argument lacks \"") << key << "\": " << text).view());
  return *value;
}

std::vector<char> process_arg() { return read_blob(aici_host_process_arg()); }

}  // namespace

void run_init_prompt(Controller& controller) {
  controller.init_prompt(json::numbers(field(process_arg(), "prompt")));
  give_back("{}");
}

void run_pre(Controller& controller) {
  PreResult result = controller.pre_process();
  Text out("{\"num_forks\":");
  out << result.num_forks << ",\"suspend\":" << (result.suspend ? "true" : "false");
  give_back((out << ",\"ff_tokens\":" << json::array(result.ff_tokens) << '}').view());
}

void run_mid(Controller& controller) {
  std::vector<TokenId> fork_group;
  if (controller.needs_fork_group()) fork_group = json::numbers(field(process_arg(), "fork_group"));
  MidResult result = controller.mid_process(fork_group);
  switch (result.kind) {
    case MidResult::Kind::Stop:
      return give_back("\"Stop\"");
    case MidResult::Kind::Sample:
      aici_host_return_logit_bias(address(result.mask->data()));
      return give_back("{\"SampleWithBias\":{}}");
    case MidResult::Kind::Splice:
      Text out("{\"Splice\":{\"backtrack\":");
      return give_back((out << result.backtrack << ",\"ff_tokens\":" << json::array(result.ff_tokens) << "}}").view());
  }
}

void run_post(Controller& controller) {
  std::vector<char> arg = process_arg();
  std::optional<std::string_view> backtrack = json::get({arg.data(), arg.size()}, "backtrack");
  std::vector<TokenId> tokens = json::numbers(field(arg, "tokens"));
  bool stop = controller.post_process(tokens, backtrack ? static_cast<uint32_t>(json::number(*backtrack)) : 0);
  give_back(stop ? "{\"stop\":true}" : "{\"stop\":false}");
}

}  // namespace detail
}  // namespace aici
