// PageFeeds: the viewers of the status page, and the updates that they receive.
//
// Owned by the server; the loop's thread. Each page with viewers is one document, made once for all
// of them (the overview once more for each user who may see some jobs only), when something has
// changed and at most every kInterval, and less often if that takes more than a twentieth of the
// loop's time. A viewer receives what has changed since its last update, when its connection can
// take it: a slow one skips states and delays no other. Only durable state is sent. The HTTP server
// bounds connections; a viewer that may not read any longer (its certificate was revoked) receives
// nothing more.
//
// It also updates the histories, with or without viewers, and has a job's earlier steps read from
// its metrics.jsonl: on a thread of its own, or by the job's node in a cluster with users.
#pragma once

#include <compare>
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
#include "coordinator/page/metrics_reading.h"
#include "coordinator/page/page_document.h"

namespace muster {

struct PageSources {
  const Controller& controller;
  std::string cluster;  // its name, for the heading
  // Calls back once with the job in memory or in the archive; the view is good until the return.
  std::function<void(const std::string& job, std::function<void(const Result<JobView>&)>)> find_job;
  // Calls back with OK once everything decided so far is durable.
  std::function<void(std::function<void(const Status&)>)> after_durable;
  std::function<Now()> now;
  LogSource read_log;
};

// What a viewer may see.
struct PageViewer {
  std::string user;  // who sees less than everything; empty: a viewer who sees everything
  JobFilter sees;    // empty: all jobs
};

class PageFeeds {
 public:
  static constexpr Duration kInterval = std::chrono::milliseconds(250);
  // Updates without an event, for what changes with time only: a job that has been silent for a
  // while.
  static constexpr Duration kIdleInterval = std::chrono::seconds(1);
  // Limit of metrics files that wait to be read; beyond it, jobs are shown without their earlier
  // steps.
  static constexpr std::size_t kMaxReads = 16;

  PageFeeds(EventLoop& loop, PageSources sources);
  ~PageFeeds();
  PageFeeds(const PageFeeds&) = delete;
  PageFeeds& operator=(const PageFeeds&) = delete;

  void OnJobsChanged(const std::vector<JobId>& jobs);
  void OnEvents() { NoteNews(); }

  // A viewer of the overview, or of `job` if that is not empty, which the viewer may see.
  void Add(const JobId& job, const PageViewer& who, const HttpRequest& request,
           std::shared_ptr<HttpStream> stream);
  void CloseAll();

  std::size_t viewers() const { return viewers_.size(); }
  const Histories& histories() const { return histories_; }

 private:
  struct PageName {
    JobId job;         // empty: the overview
    std::string user;  // of an overview of what one user may see; empty: of everything
    friend auto operator<=>(const PageName&, const PageName&) = default;
  };
  struct Viewer {
    std::shared_ptr<HttpStream> stream;
    std::function<Status()> recheck;
    PageName page;
    std::uint64_t told = 0;
  };
  // Texts of one round, by page and the revision that was sent before.
  using Texts = std::map<std::pair<PageName, std::uint64_t>, std::string>;

  void NoteNews();
  void Arm();
  void Compose();
  void ServeAll();
  void Serve(Viewer& viewer, Texts& texts);
  void Forget(const HttpStream* stream);
  void Show(const JobId& job);
  void ReadPast(const JobView& view);
  void TakePast(const JobId& job, StepCurves past);

  EventLoop& loop_;
  const PageSources sources_;
  Histories histories_;
  std::map<PageName, std::unique_ptr<PageDocument>> pages_;
  std::map<const HttpStream*, Viewer> viewers_;
  Timer timer_;
  TimePoint next_allowed_;
  bool news_ = false;
  bool held_ = false;  // the composed content is not durable yet
  bool closed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  WorkerPool reads_{"page-reads", 1, kMaxReads};
};

}  // namespace muster
