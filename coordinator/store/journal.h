// Journal: commits as numbered files in a directory on a shared file system, for one coordinator
// after another. docs/store-format.md has the layout, docs/adr/0012 the reasons.
//
// DIR/epoch/K      the owner of epoch K; claimed by each coordinator when it starts
// DIR/log/N        commit N; the first one of an epoch names its owner
//   DIR/snapshot/N   the state after commit N
//
// A file gets its name by link(), whole and durable, and never changes. So commit N is taken once:
// the second writer is fenced. Because a coordinator begins its epoch with a commit, an older one
// that still runs cannot commit once more, however long it was stopped.
//
// Invariant behind that: a name in log/ that an earlier coordinator might still try to take is
// never free again. That is the number after its last commit, where the next epoch began; such
// commits are kept for good. A coordinator that is only starting may be behind by more; after its
// first commit it checks for a snapshot as new as that (Begin).
//
// Owned by a store; one thread at a time. Everything may block for as long as the file system
// does. After a failed Append the journal must not be used any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/store/journal_files.h"
#include "coordinator/store/journal_format.h"
#include "coordinator/store/journal_image.h"
#include "coordinator/store/store_contents.h"

namespace muster {

struct JournalOptions {
  std::string dir;  // made if it is missing; its parent must exist
  std::string node;
  std::int64_t pid = 0;
  std::string address;       // reported to a fenced coordinator; may be empty
  std::int64_t unix_ms = 0;  // now
  std::size_t kept_events = 20000;
  // A snapshot is written after this many commits, or bytes of them.
  std::uint64_t snapshot_commits = 512;
  std::uint64_t snapshot_bytes = 16 << 20;
  // Trouble that is not a failure: a damaged snapshot, one that could not be written.
  std::function<void(const std::string&)> warn = [](const std::string&) {};
};

class Journal {
 public:
  // Claims the next epoch, reads what is there and begins the epoch: from then on every older
  // coordinator is fenced. kAborted: another one was faster; kDataLoss: the named file is damaged
  // or missing.
  static Result<std::unique_ptr<Journal>> Open(JournalFiles& files, JournalOptions options);

  // What is there now, beside the coordinator that has it: claims nothing, and writes nothing.
  static Result<StoreContents> Read(JournalFiles& files, const std::string& dir);
  // Makes a journal of the contents in a directory that is not there.
  static Status Write(JournalFiles& files, const std::string& dir, const StoreContents& contents);

  // Operations as AppendOperation writes them. Durable when it returns OK. kAborted: fenced.
  Status Append(std::string_view payload);
  // kAborted once another coordinator has taken over, which an idle one would not notice.
  Status CheckFence();
  // Writes a snapshot and removes the files it replaces, if there are enough of them.
  void CompactIfDue();

  std::uint64_t epoch() const { return claim_.epoch; }
  std::uint64_t number() const { return state_.number; }  // of the newest commit
  const JournalImage& image() const { return state_.image; }

 private:
  // The result of reading so far.
  struct State {
    explicit State(std::size_t kept_events) : image(kept_events) {}
    JournalImage image;
    std::uint64_t number = 0;  // of the newest commit in it
    std::uint64_t epoch = 0;   // of that commit
    std::uint64_t snapshot = 0;
    std::uint64_t bytes_since = 0;  // of commits after the snapshot
    std::vector<std::string> damaged_snapshots;
  };
  enum class Published { kOurs, kTaken };

  Journal(JournalFiles& files, JournalOptions options);
  Status MakeDirectories();
  Status ClaimEpoch();
  Status Replay();
  Status Begin();
  Status ReadSnapshot(State* state);
  Status ReadTail(State* state);
  Status ApplyCommit(std::string_view bytes, std::uint64_t number, State* state);
  Result<Published> Publish(const std::string& directory, std::uint64_t number,
                            const std::string& bytes);
  Result<std::vector<std::uint64_t>> Numbers(const std::string& directory);
  Status Fenced(std::uint64_t number);
  Status Compact();
  void RemoveOld(std::uint64_t kept_snapshot);
  void RemoveTemporaries();
  std::string Path(const std::string& directory, std::uint64_t number) const;

  JournalFiles& files_;
  const JournalOptions options_;
  const std::string epochs_, log_, snapshots_;  // directories
  EpochClaim claim_;
  State state_;
  std::uint64_t next_snapshot_ = 0;  // commit after which one is due
};

}  // namespace muster
