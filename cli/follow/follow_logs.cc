#include "cli/follow/follow_logs.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "cli/base/exit_code.h"
#include "cli/follow/reconnect.h"

namespace muster {
namespace {

constexpr auto kPollPause = std::chrono::milliseconds(200);
constexpr std::int64_t kTailBytes = 256 << 10;

// One rank's log: where its reader is, and the line that has not ended yet.
struct LogCursor {
  std::int64_t offset = 0;
  std::string partial;
  bool ended = false;
};

class LogPrinter {
 public:
  LogPrinter(std::ostream& out, bool prefix) : out_(out), prefix_(prefix) {}

  void Add(int rank, LogCursor& cursor, const std::string& data) {
    cursor.partial += data;
    std::size_t start = 0;
    for (std::size_t end; (end = cursor.partial.find('\n', start)) != std::string::npos;
         start = end + 1)
      Line(rank, cursor.partial.substr(start, end - start));
    cursor.partial.erase(0, start);
  }
  void Flush(int rank, LogCursor& cursor) {
    if (!cursor.partial.empty()) Line(rank, cursor.partial);
    cursor.partial.clear();
    out_.flush();
  }

 private:
  void Line(int rank, const std::string& line) {
    if (prefix_) out_ << "rank " << rank << " | ";
    out_ << line << '\n';
  }

  std::ostream& out_;
  bool prefix_;
};

std::vector<int> RanksOf(const v1::Job& job, const LogsOptions& options) {
  if (options.rank) return {*options.rank};
  std::vector<int> ranks;
  for (int rank = 0; rank < std::max(job.world_size(), job.ranks_size()); ++rank)
    ranks.push_back(rank);
  if (ranks.empty()) ranks.push_back(0);
  if (options.local_ranks) {
    std::erase_if(ranks, [&](int rank) {
      return !options.local_ranks->contains(rank % options.ranks_per_node);
    });
  }
  return ranks;
}

// Reads what there is now from the cursor on.
Status ReadToEnd(CommandContext& context, v1::ReadLogRequest request, LogCursor& cursor,
                 LogPrinter& printer) {
  for (;;) {
    request.set_offset(cursor.offset);
    auto chunk = context.client.ReadLog(request);
    if (!chunk.ok()) return chunk.status();
    printer.Add(request.rank(), cursor, chunk->data());
    cursor.offset = chunk->next_offset();
    cursor.ended = chunk->final() && chunk->at_end();
    if (chunk->at_end() || chunk->data().empty()) return OkStatus();
  }
}

// Puts the cursor in front of the last `lines` lines, as far as they lie in the last 256 KiB.
Status SeekToTail(CommandContext& context, v1::ReadLogRequest request, int lines,
                  LogCursor& cursor) {
  request.set_offset(-kTailBytes);
  auto chunk = context.client.ReadLog(request);
  if (!chunk.ok()) return chunk.status();
  const std::string& data = chunk->data();
  std::size_t start = data.size();
  if (start > 0 && data[start - 1] == '\n') --start;
  for (int found = 0; found < lines; ++found) {
    start = start == 0 ? std::string::npos : data.rfind('\n', start - 1);
    if (start == std::string::npos) break;
  }
  const std::size_t skipped = lines == 0 ? data.size() : start == std::string::npos ? 0 : start + 1;
  cursor.offset = chunk->next_offset() - static_cast<std::int64_t>(data.size() - skipped);
  return OkStatus();
}

class LogFollower {
 public:
  LogFollower(CommandContext& context, const LogsOptions& options, const v1::Job& job)
      : context_(context),
        options_(options),
        job_(job),
        printer_(context.terminal.out, RanksOf(job, options).size() > 1) {}

  // Everything there is now. The first pass starts at the tail, if one is wanted.
  Status Pass() {
    for (const int rank : RanksOf(job_, options_)) {
      v1::ReadLogRequest request;
      request.set_job(job_.id());
      request.set_rank(rank);
      request.set_generation(options_.generation ? options_.generation : job_.generation());
      const auto [entry, first] = cursors_.try_emplace(rank);
      LogCursor& cursor = entry->second;
      Status status;
      if (first && options_.tail) status = SeekToTail(context_, request, *options_.tail, cursor);
      const bool placed = status.ok();
      if (placed) status = ReadToEnd(context_, request, cursor, printer_);
      // A rank that has not started yet has no log, and a node may be too busy to read one; with
      // --follow the next pass asks again.
      const bool not_yet = status.code() == StatusCode::kNotFound;
      const bool busy = status.code() == StatusCode::kResourceExhausted;
      if (!status.ok() && !(options_.follow && (not_yet || busy))) return status;
      if (not_yet || !placed) cursors_.erase(entry);
      if (!options_.follow || cursor_ended(rank)) Flush(rank);
    }
    context_.terminal.out.flush();
    return OkStatus();
  }

  // Looks at the job again; true when nothing more can come.
  Result<bool> Refresh() {
    if (!context_.terminal.out) return true;
    MUSTER_ASSIGN_OR_RETURN(v1::Job job, context_.client.GetJob(job_.id()));
    const bool was_terminal = IsTerminal(job_.state());
    if (options_.generation == 0) CatchUp(job.generation());
    job_ = std::move(job);
    if (was_terminal) return true;  // a pass after the end has been made
    const bool fixed = options_.generation != 0 && options_.generation < job_.generation();
    if (!fixed) return false;
    for (const auto& [rank, cursor] : cursors_)
      if (!cursor.ended) return false;
    return !cursors_.empty();
  }

 private:
  // What the attempts before `newest` have written since it was looked last. Where a node cannot be
  // asked for it any more, the newer lines are not to wait.
  void CatchUp(std::int64_t newest) {
    const std::int64_t seen = job_.generation();
    std::int64_t next = seen > 0 ? seen : options_.from_first ? 1 : newest;
    for (; next < newest; ++next) {
      job_.set_generation(next);
      (void)Pass();
      for (auto& [rank, cursor] : cursors_) printer_.Flush(rank, cursor);
      cursors_.clear();
      context_.terminal.err << "--- generation " << next + 1 << " ---\n";
    }
  }
  bool cursor_ended(int rank) const {
    const auto entry = cursors_.find(rank);
    return entry != cursors_.end() && entry->second.ended;
  }
  void Flush(int rank) {
    if (const auto entry = cursors_.find(rank); entry != cursors_.end())
      printer_.Flush(rank, entry->second);
  }

  CommandContext& context_;
  const LogsOptions& options_;
  v1::Job job_;
  LogPrinter printer_;
  std::map<int, LogCursor> cursors_;
};

}  // namespace

CommandResult ShowLogs(CommandContext& context, const LogsOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const v1::Job job, context.client.GetJob(options.job));
  if (!options.follow && job.generation() == 0)
    return NotFound("job " + job.id() + " has not started, so it has no logs\n" +
                    "  next: muster logs --follow " + job.id() + " " + SameCluster(context));
  v1::Job seen = job;
  if (options.from_first) seen.set_generation(0);
  LogFollower follower(context, options, seen);
  if (seen.generation() > 0) {
    MUSTER_RETURN_IF_ERROR(follower.Pass());
  }
  Reconnect reconnect(context);
  reconnect.Answered();
  while (options.follow) {
    const Result<bool> done = follower.Refresh();
    const Status passed = done.ok() ? follower.Pass() : done.status();
    if (passed.ok()) reconnect.Answered();
    if (passed.ok() && *done) break;
    Interrupt& interrupt = context.interrupt();
    if (passed.ok() ? interrupt.WaitFor(kPollPause) : interrupt.requested()) {
      if (!options.on_interrupt || !options.on_interrupt()) return kExitInterrupted;
      continue;
    }
    if (!passed.ok()) {
      MUSTER_RETURN_IF_ERROR(reconnect.Pause(passed));
    }
  }
  return kExitSuccess;
}

}  // namespace muster
