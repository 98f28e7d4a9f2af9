// A file system in memory for two journals, each on its own thread, one of which runs at a time:
// between any two calls of JournalFiles a seeded choice decides which one continues. So one seed is
// one interleaving, and a failing one can be run again. Tests only.
#pragma once

#include <cerrno>
#include <condition_variable>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/store/journal_files.h"

namespace muster {

// The thread that may continue. Every thread calls Join before the first of them runs.
class TurnsForTest {
 public:
  TurnsForTest(unsigned seed, int threads) : random_(seed), expected_(threads) {}

  void Join(int thread) { Wait(thread); }
  void Next(int thread) { Wait(thread); }
  void Leave(int thread) {
    std::lock_guard lock(mutex_);
    --expected_;
    if (running_ == thread) running_ = -1;
    Choose();
  }

 private:
  void Wait(int thread) {
    std::unique_lock lock(mutex_);
    waiting_.insert(thread);
    if (running_ == thread) running_ = -1;
    Choose();
    changed_.wait(lock, [&] { return running_ == thread; });
  }
  void Choose() {
    if (running_ >= 0 || waiting_.empty() || static_cast<int>(waiting_.size()) < expected_) return;
    // Mostly the same one again, so that others stand still for long.
    auto next = waiting_.find(last_);
    if (next == waiting_.end() || random_() % 16 == 0) {
      next = waiting_.begin();
      std::advance(next, static_cast<int>(random_() % waiting_.size()));
    }
    running_ = last_ = *next;
    waiting_.erase(next);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::minstd_rand random_;
  int expected_;
  int running_ = -1;
  int last_ = -1;
  std::set<int> waiting_;
};

// Shared by all; only the thread whose turn it is touches it.
struct ModelDiskForTest {
  std::map<std::string, std::string> files;
};

class ModelFilesForTest : public JournalFiles {
 public:
  ModelFilesForTest(ModelDiskForTest& disk, TurnsForTest* turns, int thread)
      : disk_(disk), turns_(turns), thread_(thread) {}

  int MakeDirectory(const std::string&) override { return 0; }
  int Write(const std::string& path, std::string_view bytes) override {
    Transition();
    return disk_.files.emplace(path, bytes).second ? 0 : EEXIST;
  }
  int Link(const std::string& from, const std::string& to) override {
    Transition();
    const auto source = disk_.files.find(from);
    if (source == disk_.files.end()) return ENOENT;
    if (!disk_.files.emplace(to, source->second).second) return EEXIST;
    // The answer of the file server is lost, and the client sends the request again.
    return ++links_ % 7 == 0 ? EEXIST : 0;
  }
  int Remove(const std::string& path) override {
    Transition();
    return disk_.files.erase(path) == 1 ? 0 : ENOENT;
  }
  int SyncDirectory(const std::string&) override { return 0; }
  int Read(const std::string& path, std::string* bytes) override {
    Transition();
    const auto file = disk_.files.find(path);
    if (file == disk_.files.end()) return ENOENT;
    *bytes = file->second;
    return 0;
  }
  int List(const std::string& path, std::vector<std::string>* names) override {
    Transition();
    names->clear();
    for (const auto& [name, content] : disk_.files) {
      if (name.starts_with(path + "/")) names->push_back(name.substr(path.size() + 1));
    }
    return 0;
  }

 private:
  void Transition() {
    if (turns_ != nullptr) turns_->Next(thread_);
  }
  ModelDiskForTest& disk_;
  TurnsForTest* const turns_;
  const int thread_;
  int links_ = 0;
};

}  // namespace muster
