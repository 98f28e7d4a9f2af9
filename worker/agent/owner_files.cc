#include "worker/agent/owner_files.h"

#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "common/checkpoint_format/shard_frame.h"
#include "common/job_spec/parse.h"
#include "common/telemetry/log.h"
#include "worker/agent/checkpoint_files.h"
#include "worker/agent/log_reader.h"
#include "worker/agent/owner_answers.h"
#include "worker/agent/owner_frames.h"
#include "worker/agent/rank_environment.h"

namespace muster::worker {
namespace {

using Json = nlohmann::json;

// Each longer than the same takes on a disk that answers, whatever the size.
constexpr std::chrono::seconds kLogLimit{10};
constexpr std::chrono::seconds kPrepareLimit{60};
constexpr std::chrono::minutes kFilesLimit{10};
// Beside the time of a checkpoint's bytes at this many a second: all jobs of the node wait for it,
// and an account may stop its server.
constexpr std::chrono::seconds kScrubLimit{60};
constexpr double kSlowestRead = 1 << 20;
constexpr std::chrono::seconds kEndLimit{5};
constexpr int kEndPauseMillis = 20;

// What another user than the worker's cannot have.
Status CheckForOwner(const Prepare& prepare) {
  const auto spec = ParseJobSpec(prepare.spec_yaml);
  if (!spec.ok()) return spec.status();
  const std::string& image = spec->container.image;
  if (!image.empty() && !image.starts_with('/'))
    return InvalidArgument("container.image: " + image +
                           ": podman cannot be asked for images where jobs run as their owners; "
                           "name a directory into which the image was unpacked");
  // What muster-launcher gives each job one of its own of.
  for (const auto& [key, path] : {std::pair<const char*, std::string>{"workdir", spec->workdir},
                                  {"output.dir", prepare.output_dir}})
    if (launcher::IsOfEachJob(path))
      return InvalidArgument(std::string(key) + ": " + path +
                             ": each job has /tmp, /var/tmp and /dev/shm of its own here");
  return OkStatus();
}

// The launcher has not made it, so it has started nothing there: it lies in a directory of root's.
bool IsMissing(const std::string& ranks_dir) {
  struct stat info {};
  return ::lstat(ranks_dir.c_str(), &info) != 0 && errno == ENOENT;
}

// Whether the server at the other end is gone: what it held is closed in any order, over a moment.
bool EndsNow(const PacketSocket& socket) {
  constexpr int kEndsWithinMillis = 100;
  pollfd entry{socket.fd(), 0, 0};
  return !socket.valid() || ::poll(&entry, 1, kEndsWithinMillis) > 0;
}

// What a file server may ask while it reads a checkpoint: the bytes of each shard, twice, in pieces
// of which it has to be done within the time of the slowest disk. A piece takes a block at least.
class ScrubQuestions {
 public:
  ScrubQuestions(const ScrubCheckpoint& order, const BeforeRead& before_read)
      : before_read_(before_read) {
    constexpr std::uint64_t kSmallParts = 4;  // of a shard: its preamble, its head, its table
    for (const ShardInfo& shard : order.checkpoint.shards)
      left_ += 2 * (shard.bytes + kSmallParts * kShardBlock);
  }

  Result<Json> Answer(const Json& asked, Deadline* deadline) {
    const auto field = asked.find("bytes");
    if (field == asked.end() || !field->is_number_unsigned())
      return DataLoss("the file server of the account asks for no number of bytes");
    const auto bytes = field->get<std::uint64_t>();
    const std::uint64_t counted = std::max<std::uint64_t>(bytes, kShardBlock);
    if (counted > left_)
      return DataLoss("the file server of the account reads more than the checkpoint has");
    left_ -= counted;
    const TimePoint begin = SystemClock().Now();
    MUSTER_RETURN_IF_ERROR(before_read_(bytes));
    const TimePoint now = SystemClock().Now();
    const Duration earned = FromSeconds(static_cast<double>(counted) / kSlowestRead);
    // A cancel is seen at the next question, so that no wait for it may grow.
    *deadline = Deadline::At(
        std::min(deadline->when() + (now - begin) + earned, now + Duration(kScrubLimit)));
    Json answer;
    AddStatus(OkStatus(), &answer);
    return answer;
  }

 private:
  const BeforeRead& before_read_;
  std::uint64_t left_ = 0;
};

// The report of an answer that may not have come.
template <typename Report>
Result<Report> ReportOf(const Result<Json>& answer) {
  return answer.ok() ? ReportIn<Report>(*answer) : answer.status();
}

}  // namespace

OwnerFiles::OwnerFiles(const std::string& launcher) {
  if (!launcher.empty()) launcher_.emplace(launcher);
}

Result<UniqueFd> OwnerFiles::Open(const std::string& account, std::uint64_t* number) {
  std::shared_ptr<Server> server;
  {
    const std::lock_guard lock(mutex_);
    auto& entry = servers_[account];
    if (!entry) entry = std::make_shared<Server>();
    server = entry;
  }
  MUSTER_ASSIGN_OR_RETURN(auto ends, FramePair());
  const std::lock_guard lock(server->mutex);
  if (*number > 0 && *number == server->number) {
    if (!EndsNow(server->socket))
      return Unavailable("the file server of the account refuses calls");
    server->socket.Close();
  }
  for (bool is_new = false;; is_new = true) {
    *number = server->number;
    if (server->socket.valid() &&
        server->socket.Send("call", {ends.second.get()}, Deadline::After(kLogLimit)).ok())
      return std::move(ends.first);
    if (is_new) return Unavailable("the file server of the account has ended");
    MUSTER_ASSIGN_OR_RETURN(auto pair, PacketSocket::Pair());
    MUSTER_RETURN_IF_ERROR(launcher_->StartFiles(account, pair.second.fd()));
    server->socket = std::move(pair.first);
    ++server->number;
  }
}

Result<Json> OwnerFiles::Call(const std::string& account, const Json& call, Duration limit,
                              const Between& between) {
  if (account.empty())
    return FailedPrecondition("the job's owner has no `account` in the cluster's user file");
  std::uint64_t server = 0;
  for (bool is_second = false;; is_second = true) {
    MUSTER_ASSIGN_OR_RETURN(const UniqueFd fd, Open(account, &server));
    Deadline deadline = Deadline::After(limit);
    bool answered = false;
    Status status = WriteFrame(fd.get(), call, deadline);
    while (status.ok()) {
      auto frame = ReadFrame(fd.get(), deadline);
      status = frame.status();
      if (!frame.ok()) break;
      answered = true;
      if (!between || !frame->contains("asks")) return frame;
      const auto answer = between(*frame, &deadline);
      status = answer.ok() ? WriteFrame(fd.get(), *answer, deadline) : answer.status();
    }
    // One that was idle may have ended just then.
    if (answered || is_second || status.code() != StatusCode::kUnavailable) return status;
  }
}

OwnersPart OwnerFiles::PrepareForOwner(const LaunchContext& context, const Prepare& prepare,
                                       const std::string& ranks_dir) {
  if (!launcher_) return worker::PrepareForOwner(context, prepare, ranks_dir);
  if (Status status = CheckForOwner(prepare); !status.ok()) return {.status = status};
  if (Status status = launcher_->MakeDirectory(prepare.account, prepare.job.value); !status.ok())
    return {.status = status, .retryable = true};
  const auto answer = Call(prepare.account,
                           {{"call", "prepare"},
                            {"order", Packed(prepare)},
                            {"directory", ranks_dir},
                            {"trainer", context.trainer_path},
                            {"guardian", context.guardian_path},
                            {"variables", context.passed_through}},
                           kPrepareLimit);
  if (!answer.ok()) return {.status = answer.status(), .retryable = true};
  return PartIn(*answer);
}

Status OwnerFiles::WriteResumeFile(const std::string& account, const Launch& launch,
                                   const std::string& ranks_dir) {
  if (!launcher_) return worker::WriteResumeFile(launch, ranks_dir);
  const auto answer =
      Call(account, {{"call", "resume"}, {"order", Packed(launch)}, {"directory", ranks_dir}},
           kPrepareLimit);
  return answer.ok() ? StatusIn(*answer) : answer.status();
}

std::vector<std::string> OwnerFiles::RemoveAbandonedCheckpoints(const std::string& account,
                                                                const std::string& output_dir,
                                                                const Launch& launch) {
  if (!launcher_) return worker::RemoveAbandonedCheckpoints(output_dir, launch);
  const auto answer =
      Call(account, {{"call", "abandoned"}, {"order", Packed(launch)}, {"directory", output_dir}},
           kFilesLimit);
  return answer.ok() ? TextsIn(*answer, "removed") : std::vector<std::string>();
}

ManifestWritten OwnerFiles::WriteManifest(const CheckpointCommitted& committed) {
  ManifestWritten written{.job = committed.job,
                          .generation = committed.generation,
                          .directory = committed.checkpoint.directory,
                          .error = {},
                          .pruned = {}};
  std::string prune_error;
  if (launcher_) {
    const auto answer =
        Call(committed.account, {{"call", "commit"}, {"order", Packed(committed)}}, kFilesLimit);
    const auto report = ReportOf<ManifestWritten>(answer);
    written.error = report.ok() ? report->error : report.status().message();
    if (report.ok()) written.pruned = report->pruned;
    if (answer.ok()) prune_error = TextIn(*answer, "prune_error");
  } else {
    CommitWritten done = worker::WriteManifest(committed);
    written.error = done.status.message();
    written.pruned = std::move(done.pruned);
    prune_error = done.prune_error;
  }
  if (!prune_error.empty()) Log().warn("job {}: {}", committed.job.value, prune_error);
  return written;
}

LogChunk OwnerFiles::ReadLog(const muster::ReadLog& request) {
  if (!launcher_) return ReadLogChunk(request);
  auto chunk = ReportOf<LogChunk>(
      Call(request.account, {{"call", "log"}, {"order", Packed(request)}}, kLogLimit));
  if (!chunk.ok()) return {.request_id = request.request_id, .error = chunk.status().message()};
  chunk->request_id = request.request_id;
  return *std::move(chunk);
}

CheckpointScrubbed OwnerFiles::Scrub(const ScrubCheckpoint& order, const BeforeRead& before_read) {
  if (!launcher_) return ScrubShards(order, before_read);
  ScrubQuestions questions(order, before_read);
  auto report = ReportOf<CheckpointScrubbed>(
      Call(order.account, {{"call", "scrub"}, {"order", Packed(order)}}, kScrubLimit,
           [&questions](const Json& asked, Deadline* deadline) {
             return questions.Answer(asked, deadline);
           }));
  CheckpointScrubbed scrubbed{.scrub_id = order.scrub_id,
                              .job = order.job,
                              .directory = order.checkpoint.directory,
                              .outcome = ScrubOutcome::kUnreachable};
  scrubbed.detail = report.ok() ? report->detail : report.status().message();
  if (report.status().code() == StatusCode::kCancelled) scrubbed.outcome = ScrubOutcome::kCalledOff;
  if (!report.ok()) return scrubbed;
  scrubbed.outcome = report->outcome;
  scrubbed.file = report->file;
  return scrubbed;
}

bool OwnerFiles::ShardIsBeingWritten(const std::string& account,
                                     const std::vector<std::string>& output_dirs) {
  if (!launcher_) return worker::ShardIsBeingWritten(output_dirs);
  const auto answer = Call(account, {{"call", "written"}, {"directories", output_dirs}}, kLogLimit);
  return answer.ok() && FlagIn(*answer, "written");
}

Status OwnerFiles::EndGuardian(const std::string& account, const std::string& ranks_dir,
                               const JobId& job) {
  if (!launcher_) return KillGuardian(ranks_dir);
  // Where the job has a cgroup, its guardian ends with it.
  (void)launcher_->End(job.value);
  const auto answer = Call(account, {{"call", "end"}, {"directory", ranks_dir}}, kLogLimit);
  return answer.ok() ? StatusIn(*answer) : answer.status();
}

std::optional<TerminationProof> OwnerFiles::ProveTerminated(const std::string& account,
                                                            const std::string& ranks_dir,
                                                            const JobId& job,
                                                            Generation generation) {
  if (!launcher_) return worker::ProveTerminated(ranks_dir, job, generation);
  if (IsMissing(ranks_dir)) return TerminationProof{};
  // First what the account cannot get out of the way of; what still ends then is found below.
  const Deadline deadline = Deadline::After(kEndLimit);
  Status ended = launcher_->End(job.value);
  for (; ended.code() == StatusCode::kAborted && !deadline.Expired();
       ended = launcher_->End(job.value))
    ::poll(nullptr, 0, kEndPauseMillis);
  if (!ended.ok() && ended.code() != StatusCode::kAborted) {
    Log().warn("job {}: its processes cannot be ended: {}", job.value, ended.message());
    return std::nullopt;
  }
  const auto answer = Call(
      account,
      {{"call", "prove"}, {"directory", ranks_dir}, {"job", job.value}, {"generation", generation}},
      kPrepareLimit);
  auto proof = answer.ok() ? ProofIn(*answer, job, generation) : std::nullopt;
  if (!proof)
    Log().warn("job {}: whether its processes are gone is not known: {}", job.value,
               (answer.ok() ? StatusIn(*answer) : answer.status()).message());
  return proof;
}

void OwnerFiles::RemoveRanksDirectory(const std::string& account, const std::string& ranks_dir) {
  if (!launcher_ || IsMissing(ranks_dir)) return;
  (void)Call(account, {{"call", "remove"}, {"directory", ranks_dir}}, kFilesLimit);
  const std::string job = std::filesystem::path(ranks_dir).parent_path().filename().string();
  const Status status = launcher_->Forget(job);
  if (!status.ok()) Log().warn("job {}: {}", job, status.message());
}

}  // namespace muster::worker
