#include "tests/simulation/sim_disk.h"

#include <cerrno>

namespace muster::sim {

void SimDisk::Change(const std::string& path, Bytes bytes) {
  const auto found = files_.find(path);
  since_.emplace_back(path, found == files_.end() ? nullptr : found->second);
  if (bytes) {
    files_[path] = std::move(bytes);
  } else {
    files_.erase(path);
  }
}

void SimDisk::CutPower(Random& random) {
  const int lost = random.Pick(static_cast<int>(since_.size()) + 1);
  for (int i = 0; i < lost; ++i) {
    auto [path, before] = std::move(since_.back());
    since_.pop_back();
    if (before) {
      files_[path] = std::move(before);
    } else {
      files_.erase(path);
    }
  }
  Settle();
}

int SimDisk::Write(const std::string& path, std::string_view bytes) {
  if (std::exchange(fails_next_, false)) return ENOSPC;
  if (files_.contains(path)) return EEXIST;
  Change(path, std::make_shared<const std::string>(bytes));
  return 0;
}

int SimDisk::Link(const std::string& from, const std::string& to) {
  const auto source = files_.find(from);
  if (source == files_.end()) return ENOENT;
  if (files_.contains(to)) return EEXIST;
  Change(to, source->second);
  return 0;
}

int SimDisk::Remove(const std::string& path) {
  if (!files_.contains(path)) return ENOENT;
  Change(path, nullptr);
  return 0;
}

int SimDisk::Read(const std::string& path, std::string* bytes) {
  const auto file = files_.find(path);
  if (file == files_.end()) return ENOENT;
  *bytes = *file->second;
  return 0;
}

int SimDisk::List(const std::string& path, std::vector<std::string>* names) {
  names->clear();
  const std::string folder = path + "/";
  for (auto file = files_.lower_bound(folder);
       file != files_.end() && file->first.starts_with(folder); ++file)
    names->push_back(file->first.substr(folder.size()));
  return 0;
}

}  // namespace muster::sim
