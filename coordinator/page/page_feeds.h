// PageFeeds: everybody who looks at the status page, and what they are told.
//
// Owned by the server; the loop's thread. Each page that somebody looks at is one document, made
// once for all its viewers, when something has changed and at most every kInterval, and less often
// where that takes more than a twentieth of the loop's time. A viewer is told what has changed
// since it was told last, when its connection can take it: a slow one skips states and holds up
// nobody. Nothing is told that is not durable. Connections are bounded by the HTTP server; whoever
// may not read any longer (a certificate that was revoked) is told nothing more.
//
// It also feeds the histories, with or without viewers, and has a job's earlier steps read from its
// metrics.jsonl on a thread of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "common/telemetry/http_server.h"
#include "coordinator/control/controller.h"
#include "coordinator/history/histories.h"
#include "coordinator/page/job_document.h"
#include "coordinator/page/page_document.h"

namespace muster {

struct PageSources {
  const Controller& controller;
  std::string cluster;  // its name, for the head
  // Calls back with OK once everything decided so far is durable.
  std::function<void(std::function<void(const Status&)>)> after_durable;
  std::function<Now()> now;
};

class PageFeeds {
 public:
  static constexpr Duration kInterval = std::chrono::milliseconds(250);
  // Without news, for what only time changes: a job that has been silent for so long.
  static constexpr Duration kIdleInterval = std::chrono::seconds(1);
  // Files of metrics that wait to be read; of more jobs the earlier steps are not shown.
  static constexpr std::size_t kMaxReads = 16;

  PageFeeds(EventLoop& loop, PageSources sources);
  ~PageFeeds();
  PageFeeds(const PageFeeds&) = delete;
  PageFeeds& operator=(const PageFeeds&) = delete;

  void OnJobsChanged(const std::vector<JobId>& jobs);
  void OnEvents() { NoteNews(); }

  // A viewer of the overview, or, where `job` is not empty, of that job.
  void Add(const JobId& job, const HttpRequest& request, std::shared_ptr<HttpStream> stream);
  void CloseAll();

  std::size_t viewers() const { return viewers_.size(); }
  const Histories& histories() const { return histories_; }

 private:
  struct Viewer {
    std::shared_ptr<HttpStream> stream;
    std::function<Status()> recheck;
    JobId page;  // empty: the overview
    std::uint64_t told = 0;
  };
  // Texts of one round, by page and what was told before.
  using Texts = std::map<std::pair<JobId, std::uint64_t>, std::string>;

  void NoteNews();
  void Arm();
  void Compose();
  void ServeAll();
  void Serve(Viewer& viewer, Texts& texts);
  void Forget(const HttpStream* stream);
  void ReadPast(const JobId& job);

  EventLoop& loop_;
  const PageSources sources_;
  Histories histories_;
  std::map<JobId, std::unique_ptr<PageDocument>> pages_;
  std::map<const HttpStream*, Viewer> viewers_;
  Timer timer_;
  TimePoint next_allowed_;
  bool news_ = false;
  bool held_ = false;  // what is composed is not durable yet
  bool closed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  WorkerPool reads_{"page-reads", 1, kMaxReads};
};

}  // namespace muster
