// What the file server of an account sends to a worker, and a worker to it: the first byte says
// which, the rest is a frame's body.
#include <sys/socket.h>

#include <cstring>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "worker/agent/owner_answers.h"
#include "worker/agent/owner_frames.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace muster;
  using namespace muster::worker;
  fuzz::Input input(fuzz::TextOf(data, size));
  const bool is_call = input.Byte() == 'c';
  const std::string body(input.rest());
  const auto length = static_cast<std::uint32_t>(body.size());
  auto ends = FramePair();
  fuzz::Require(ends.ok(), "there are descriptors");
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  bytes += body;
  fuzz::Require(::send(ends->first.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                    static_cast<ssize_t>(bytes.size()),
                "a frame is sent");
  const auto frame = ReadFrame(ends->second.get(), Deadline::After(std::chrono::seconds(1)));
  if (!frame.ok()) return 0;
  if (is_call) {
    if (const auto order = frame->find("order"); order != frame->end()) (void)UnpackOrder(*order);
    return 0;
  }
  (void)PartIn(*frame);
  const auto proof = ProofIn(*frame, {"0123456789"}, 1);
  for (const RankExited& exited : proof ? proof->exited : std::vector<RankExited>{})
    fuzz::Require(exited.job.value == "0123456789" && exited.generation == 1,
                  "ends are of the job that was asked for");
  (void)ReportIn<ManifestWritten>(*frame);
  (void)ReportIn<CheckpointScrubbed>(*frame);
  (void)ReportIn<LogChunk>(*frame);
  (void)TextsIn(*frame, "removed");
  (void)TextIn(*frame, "prune_error");
  return 0;
}
