// TrialFolder: where the ranks of one `muster-trainer smoke` write, OUTPUT/.smoke, and which of
// them empties and removes it. The folder may be one for all nodes, or one on each node's own disk.
//
// Rank 0 holds a lock in it, so that a second trial beside it is refused. What a killed trial left
// is removed before the gang forms, by which time no rank has written anything. At the end rank 0
// removes its folder, after its report; the first rank of another node only what rank 0 has not
// marked as its own.
//
// Each rank has one; one thread. Keep it until nothing is read from the folder any more.
#pragma once

#include <filesystem>
#include <string>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

class TrialFolder {
 public:
  // kUnavailable on rank 0 where another trial runs in the same output directory.
  static Result<TrialFolder> Take(const std::filesystem::path& output, int rank, int local_rank);

  const std::filesystem::path& path() const { return path_; }
  // The losses of one rank; those of rank 0, written before any rank ends, mark the folder as its.
  std::filesystem::path LossesOf(int rank) const;
  // And the output directory, where the trial has made it.
  void Remove() const;

 private:
  TrialFolder(const std::filesystem::path& output, int rank, int local_rank);
  Status Make() const;
  Status Lock();
  bool IsLocked() const;
  Status RemoveContents() const;

  std::filesystem::path output_;
  std::filesystem::path path_;
  int rank_ = 0;
  int local_rank_ = 0;
  bool made_output_ = false;
  UniqueFd lock_;  // of rank 0
};

}  // namespace muster
