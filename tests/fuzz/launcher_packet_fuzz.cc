// Packets of muster-launcher, which is root: requests as it reads them, and replies as the worker
// does. The first byte of a request is how many descriptors came with it.
#include <algorithm>
#include <iterator>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "worker/launcher/client.h"
#include "worker/launcher/messages.h"

namespace {

using namespace muster;

// A text that ends, with nothing behind its end.
template <std::size_t kSize>
std::string TextIn(const char (&field)[kSize]) {
  const char* const end = std::find(std::begin(field), std::end(field), '\0');
  fuzz::Require(std::all_of(end, std::end(field), [](char c) { return c == 0; }),
                "texts end, and zeros follow");
  fuzz::Require(end != std::end(field), "texts end");
  return {std::begin(field), end};
}

void TryRequest(std::size_t descriptors, std::string_view bytes) {
  using launcher::Verb;
  const auto request = launcher::Decode(bytes, descriptors);
  if (!request) return;
  const std::string account = TextIn(request->account), job = TextIn(request->job),
                    devices = TextIn(request->devices);
  const Verb verb = request->verb;
  fuzz::Require(
      std::string_view(reinterpret_cast<const char*>(&*request), sizeof *request) == bytes,
      "a request is its bytes");
  fuzz::Require(verb >= Verb::kHello && verb <= Verb::kForget, "the verb is one of six");
  const bool starts = verb == Verb::kGuardian || verb == Verb::kFiles;
  fuzz::Require(descriptors == (starts ? 1 : 0), "what is started has one descriptor");
  fuzz::Require(account.empty() == (verb != Verb::kDirectory && !starts),
                "what runs as an account names it");
  fuzz::Require(job.empty() == (verb == Verb::kHello || verb == Verb::kFiles), "jobs are named");
  fuzz::Require(devices.empty() == (verb != Verb::kGuardian), "guardians lock devices");
  for (const std::string& name : {account, job})
    fuzz::Require(name.find('/') == name.npos && !name.starts_with('.'), "names are no paths");
  fuzz::Require(!account.starts_with('-'), "an account is no option");
  fuzz::Require(("/" + devices + "/").find("/../") == std::string::npos, "a path leads down");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::TextOf(data, size);
  const Result<std::string> answer = launcher::ReadReply(bytes);
  fuzz::Require(!answer.ok() || answer->find('\0') == std::string::npos, "an answer is a text");
  fuzz::Input input(bytes);
  const std::size_t descriptors = input.Byte();
  TryRequest(descriptors, input.rest());
  return 0;
}
