#include "worker/agent/owner_server.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "common/base/thread_priority.h"
#include "common/control_pipe/packet_socket.h"
#include "worker/agent/checkpoint_files.h"
#include "worker/agent/checkpoint_scrub.h"
#include "worker/agent/job_records.h"
#include "worker/agent/log_reader.h"
#include "worker/agent/owner_frames.h"
#include "worker/agent/preflight.h"

namespace muster::worker {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::minutes kIdle{5};
constexpr std::chrono::minutes kReplyWithin{10};
constexpr std::size_t kMaxCalls = 128;  // more of them wait for a disk: the next ones are refused

struct OwnersCall {
  int fd;
  const Json& frame;
  CoordinatorMessage order;  // if there is one

  std::string Text(const char* name) const { return frame.value(name, std::string()); }
  template <typename Order>
  const Order& As() const {
    return std::get<Order>(order);
  }
};

Json WithStatus(const Status& status) {
  Json answer;
  AddStatus(status, &answer);
  return answer;
}

Json ServePrepare(const OwnersCall& call) {
  LaunchContext context{
      .trainer_path = call.Text("trainer"),
      .guardian_path = call.Text("guardian"),
      .passed_through = call.frame.value("variables", std::map<std::string, std::string>())};
  if (const char* home = std::getenv("HOME")) context.passed_through.emplace("HOME", home);
  const OwnersPart done = PrepareForOwner(context, call.As<Prepare>(), call.Text("directory"));
  Json answer = WithStatus(done.status);
  answer["retryable"] = done.retryable;
  return answer;
}

Json ServeResume(const OwnersCall& call) {
  return WithStatus(WriteResumeFile(call.As<Launch>(), call.Text("directory")));
}

Json ServeAbandoned(const OwnersCall& call) {
  return {{"removed", RemoveAbandonedCheckpoints(call.Text("directory"), call.As<Launch>())}};
}

Json ServeCommit(const OwnersCall& call) {
  const auto& committed = call.As<CheckpointCommitted>();
  CommitWritten written = WriteManifest(committed);
  return {{"report", Packed(ManifestWritten{.job = committed.job,
                                            .generation = committed.generation,
                                            .directory = committed.checkpoint.directory,
                                            .error = written.status.message(),
                                            .pruned = std::move(written.pruned)})},
          {"prune_error", written.prune_error}};
}

Json ServeLog(const OwnersCall& call) {
  return {{"report", Packed(ReadLogChunk(call.As<ReadLog>()))}};
}

Json ServeScrub(const OwnersCall& call) {
  const auto& order = call.As<ScrubCheckpoint>();
  order.at_once ? LowerThreadPriority() : LowerThreadPriorityToIdle();
  const auto before_read = [&call](std::uint64_t bytes) -> Status {
    MUSTER_RETURN_IF_ERROR(
        WriteFrame(call.fd, {{"asks", "read"}, {"bytes", bytes}}, Deadline::After(kReplyWithin)));
    const auto answer = ReadFrame(call.fd, Deadline::After(kReplyWithin));
    return answer.ok() && StatusIn(*answer).ok() ? OkStatus() : Cancelled("called off");
  };
  return {{"report", Packed(ScrubShards(order, before_read))}};
}

Json ServeWritten(const OwnersCall& call) {
  return {{"written",
           ShardIsBeingWritten(call.frame.value("directories", std::vector<std::string>()))}};
}

Json ServeEnd(const OwnersCall& call) { return WithStatus(KillGuardian(call.Text("directory"))); }

Json ServeProve(const OwnersCall& call) {
  const TerminationProof proof = ProveTerminated(call.Text("directory"), {call.Text("job")},
                                                 call.frame.value("generation", Generation{0}));
  Json answer = {{"stopped", proof.stopped},
                 {"exited", Json::array()},
                 {"unkillable", PidsOf(proof.unkillable)}};
  for (const RankExited& exited : proof.exited) answer["exited"].push_back(Packed(exited));
  return answer;
}

// What is in JOB/run, JOB/tmp and JOB/var-tmp; the directories themselves are root's to remove.
Json ServeRemove(const OwnersCall& call) {
  const auto job = std::filesystem::path(call.Text("directory")).parent_path();
  for (const char* name : {"run", "tmp", "var-tmp"}) {
    std::error_code error, ignored;
    for (std::filesystem::directory_iterator entry(job / name, error), end; !error && entry != end;
         entry.increment(error))
      std::filesystem::remove_all(entry->path(), ignored);
  }
  return Json::object();
}

Json AnswerCall(int fd, const Json& frame) {
  static const std::map<std::string, Json (*)(const OwnersCall&)> kCalls = {
      {"prepare", ServePrepare}, {"resume", ServeResume}, {"abandoned", ServeAbandoned},
      {"commit", ServeCommit},   {"log", ServeLog},       {"scrub", ServeScrub},
      {"written", ServeWritten}, {"end", ServeEnd},       {"prove", ServeProve},
      {"remove", ServeRemove}};
  OwnersCall call{.fd = fd, .frame = frame, .order = {}};
  const auto found = kCalls.find(call.Text("call"));
  if (found == kCalls.end()) return WithStatus(Unimplemented("no such call"));
  if (const auto field = frame.find("order"); field != frame.end()) {
    auto order = UnpackOrder(*field);
    if (!order.ok()) return WithStatus(order.status());
    call.order = *std::move(order);
  }
  return found->second(call);
}

struct Running {
  std::thread thread;
  std::shared_ptr<std::atomic<bool>> done;
};

void HandleCall(const UniqueFd& fd) {
  const auto frame = ReadFrame(fd.get(), Deadline::After(kReplyWithin));
  if (!frame.ok()) return;
  try {
    (void)WriteFrame(fd.get(), AnswerCall(fd.get(), *frame), Deadline::After(kReplyWithin));
  } catch (const std::exception& error) {  // a frame that is not of this worker
    (void)WriteFrame(fd.get(), WithStatus(Internal(error.what())), Deadline::After(kReplyWithin));
  }
}

}  // namespace

void ServeOwnerFiles(int fd) {
  // The account's other processes, its jobs among them, neither trace it nor take its descriptors.
  ::prctl(PR_SET_DUMPABLE, 0);
  PacketSocket worker{UniqueFd(fd)};
  std::list<Running> calls;
  for (;;) {
    auto packet = worker.Receive(Deadline::After(kIdle));
    calls.remove_if([](Running& running) {
      if (!*running.done) return false;
      running.thread.join();
      return true;
    });
    if (packet.status().code() == StatusCode::kDeadlineExceeded && !calls.empty()) continue;
    if (!packet.ok()) break;
    if (packet->fds.size() != 1 || calls.size() >= kMaxCalls) continue;
    auto done = std::make_shared<std::atomic<bool>>(false);
    calls.push_back({std::thread([done, call = std::move(packet->fds[0])] {
                       HandleCall(call);
                       *done = true;
                     }),
                     done});
  }
  // Threads may hang in a file system.
  std::_Exit(EXIT_SUCCESS);
}

}  // namespace muster::worker
