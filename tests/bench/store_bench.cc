// What a store costs: commits one after another, commits that wait for each other's disk, and a
// start on all of them; the journal beside SQLite, in the same directory, and an etcd where one is
// named.
//
//   store_bench [DIR [COMMITS [ETCD-URLS]]]
//
// DIR is on the file system in question; what is written there is removed. One JSON object on
// standard output: microseconds are of the median and of the slowest of a hundred, each commit with
// one job and one event; `grouped` has 64 commits under way at a time.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "coordinator/store/etcd_store.h"
#include "coordinator/store/journal_store.h"
#include "coordinator/store/sqlite_store.h"

namespace muster {
namespace {

using nlohmann::json;
using SteadyClock = std::chrono::steady_clock;

constexpr int kUnderWay = 64;

using OpenStore = std::function<std::unique_ptr<Store>()>;

double Microseconds(SteadyClock::time_point since) {
  return std::chrono::duration<double, std::micro>(SteadyClock::now() - since).count();
}

std::vector<StoreOperation> Decision(int number) {
  JobRecord job;
  job.id = JobId{std::to_string(number % 100)};
  job.spec_yaml.assign(1000, 'x');
  EventRecord event;
  event.seq = static_cast<std::uint64_t>(number);
  event.job = job.id;
  event.kind = "launched";
  event.message = "generation 1 runs on 8 nodes";
  return {PutJob{std::move(job)}, AppendEvent{std::move(event)}};
}

json OneAfterAnother(Store& store, int commits, int* number) {
  std::vector<double> took;
  for (int i = 0; i < commits; ++i) {
    const auto begin = SteadyClock::now();
    std::promise<Status> done;
    store.Commit(Decision(++*number), [&](const Status& status) { done.set_value(status); });
    const Status status = done.get_future().get();
    MUSTER_CHECK(status.ok(), status.ToString());
    took.push_back(Microseconds(begin));
  }
  double sum = 0;
  for (const double one : took) sum += one;
  std::sort(took.begin(), took.end());
  return {{"commits_per_second", static_cast<double>(commits) * 1e6 / sum},
          {"median_us", took[took.size() / 2]},
          {"p99_us", took[took.size() * 99 / 100]}};
}

json Grouped(Store& store, int commits, int* number) {
  std::mutex mutex;
  std::condition_variable changed;
  int under_way = 0;
  const auto begin = SteadyClock::now();
  for (int i = 0; i < commits; ++i) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return under_way < kUnderWay; });
    ++under_way;
    lock.unlock();
    store.Commit(Decision(++*number), [&](const Status& status) {
      MUSTER_CHECK(status.ok(), status.ToString());
      std::lock_guard guard(mutex);
      --under_way;
      changed.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return under_way == 0; });
  return {{"commits_per_second", static_cast<double>(commits) * 1e6 / Microseconds(begin)}};
}

json Measure(const OpenStore& open, int commits) {
  json figures;
  int number = 0;
  {
    const auto store = open();
    figures["single"] = OneAfterAnother(*store, commits, &number);
    figures["grouped"] = Grouped(*store, commits, &number);
  }
  double best_ms = 1e12;
  for (int i = 0; i < 5; ++i) {
    const auto begin = SteadyClock::now();
    const auto store = open();
    const auto state = store->Load();
    MUSTER_CHECK(state.ok(), state.status().ToString());
    best_ms = std::min(best_ms, Microseconds(begin) / 1e3);
  }
  figures["start_ms"] = best_ms;
  return figures;
}

template <typename T>
std::unique_ptr<Store> Opened(Result<std::unique_ptr<T>> store) {
  MUSTER_CHECK(store.ok(), store.status().ToString());
  return *std::move(store);
}

// What it writes stays there, under a prefix of its own.
json MeasureEtcd(const std::string& urls, int commits) {
  EtcdStoreOptions options;
  options.access.members = ParseEtcdUrls(urls).value();
  options.prefix = "/muster-store-bench-" + std::to_string(::getpid()) + "/";
  return Measure([&] { return Opened(EtcdStore::Open(options)); }, commits);
}

int Run(const std::string& parent, int commits, const std::string& etcd_urls) {
  std::string dir = parent + "/muster-store-bench-XXXXXX";
  if (::mkdtemp(dir.data()) == nullptr) {
    std::perror(dir.c_str());
    return 1;
  }
  json figures = {
      {"commits", commits},
      {"journal", Measure(
                      [&] {
                        JournalStoreOptions options;
                        options.journal.dir = dir + "/journal";
                        options.journal.node = "bench";
                        return Opened(JournalStore::Open(std::move(options)));
                      },
                      commits)},
      {"sqlite",
       Measure([&] { return Opened(SqliteStore::Open({.path = dir + "/state.db"})); }, commits)}};
  if (!etcd_urls.empty()) figures["etcd"] = MeasureEtcd(etcd_urls, commits);
  std::filesystem::remove_all(dir);
  std::printf("%s\n", figures.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const std::string parent = argc > 1 ? argv[1] : "/tmp";
  const int commits = argc > 2 ? std::atoi(argv[2]) : 5000;
  if (commits < 1) {
    std::fprintf(stderr, "usage: store_bench [DIR [COMMITS [ETCD-URLS]]]\n");
    return 2;
  }
  return muster::Run(parent, commits, argc > 3 ? argv[3] : "");
}
