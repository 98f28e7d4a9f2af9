// SimDisk: a file system in memory below the coordinator's journal.
//
// An operation is durable with the next Settle. A power cut takes back the newest of those since,
// so a commit can be cut off between any two of its operations.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/store/journal_files.h"
#include "tests/simulation/random.h"

namespace muster::sim {

class SimDisk final : public JournalFiles {
 public:
  void Settle() { since_.clear(); }
  // As many of the first operations since Settle stay as chance will have it.
  void CutPower(Random& random);
  // The next file cannot be written.
  void FailNext(bool fails) { fails_next_ = fails; }

  int MakeDirectory(const std::string&) override { return 0; }
  int Write(const std::string& path, std::string_view bytes) override;
  int Link(const std::string& from, const std::string& to) override;
  int Remove(const std::string& path) override;
  int SyncDirectory(const std::string&) override { return 0; }
  int Read(const std::string& path, std::string* bytes) override;
  int List(const std::string& path, std::vector<std::string>* names) override;

 private:
  using Bytes = std::shared_ptr<const std::string>;

  // `bytes` null: it is removed.
  void Change(const std::string& path, Bytes bytes);

  std::map<std::string, Bytes, std::less<>> files_;
  std::vector<std::pair<std::string, Bytes>> since_;  // what each changed file was before
  bool fails_next_ = false;
};

}  // namespace muster::sim
