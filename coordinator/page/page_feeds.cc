#include "coordinator/page/page_feeds.h"

#include <algorithm>
#include <utility>

#include "coordinator/history/metrics_file.h"
#include "coordinator/page/overview.h"

namespace muster {
namespace {

// Share of the loop's time, so that a page of very many ranks cannot take all of it.
constexpr int kShareOfLoop = 20;

}  // namespace

PageFeeds::PageFeeds(EventLoop& loop, PageSources sources)
    : loop_(loop), sources_(std::move(sources)), timer_(loop) {}

PageFeeds::~PageFeeds() {
  CloseAll();
  *alive_ = false;
}

void PageFeeds::OnJobsChanged(const std::vector<JobId>& jobs) {
  const TimePoint now = sources_.now().mono;
  for (const JobId& job : jobs) {
    if (const Result<JobView> view = sources_.controller.FindJob(job.value); view.ok())
      histories_.Observe(*view, now);
  }
  NoteNews();
}

void PageFeeds::Add(const JobId& job, const PageViewer& who, const HttpRequest& request,
                    std::shared_ptr<HttpStream> stream) {
  const PageName name{job, job.empty() ? who.user : ""};
  const HttpStream* key = stream.get();
  // Called first when the head of the answer has been sent.
  stream->Listen(
      [this, key] {
        Texts texts;
        if (const auto viewer = viewers_.find(key); viewer != viewers_.end())
          Serve(viewer->second, texts);
      },
      [this, key] { Forget(key); });
  viewers_[key] = {std::move(stream), request.recheck, name};
  std::unique_ptr<PageDocument>& page = pages_[name];
  const bool is_first = viewers_.size() == 1;
  if (page == nullptr && job.empty()) page = std::make_unique<Overview>(sources_.cluster, who.sees);
  if (page == nullptr) page = std::make_unique<JobDocument>(job);
  if (!job.empty()) Show(job);
  // The content is that of the last round; without one, it is made now.
  news_ = true;
  if ((is_first || page->parts().revision() == 0) && !held_) return Compose();
  Arm();
}

void PageFeeds::NoteNews() {
  news_ = true;
  if (!viewers_.empty()) Arm();
}

void PageFeeds::Arm() {
  if (closed_ || held_ || viewers_.empty()) return;
  const TimePoint now = sources_.now().mono;
  timer_.StartAt(std::max(next_allowed_, news_ ? now : now + kIdleInterval), [this] { Compose(); });
}

void PageFeeds::Compose() {
  if (closed_ || held_ || viewers_.empty()) return;
  const Now now = sources_.now();
  for (auto& [name, page] : pages_) page->Update(sources_.controller, histories_, now);
  const TimePoint end = sources_.now().mono;
  next_allowed_ = now.mono + std::max(kInterval, std::min<Duration>(kShareOfLoop * (end - now.mono),
                                                                    kIdleInterval));
  news_ = false;
  held_ = true;
  sources_.after_durable([this, alive = alive_](const Status& durable) {
    if (!*alive) return;
    held_ = false;
    // What could not be stored is not shown; the coordinator ends.
    if (!durable.ok()) return CloseAll();
    ServeAll();
    Arm();
  });
}

void PageFeeds::ServeAll() {
  Texts texts;
  // Serving may end a stream, which forgets its viewer.
  for (auto viewer = viewers_.begin(); viewer != viewers_.end();) {
    const auto next = std::next(viewer);
    Serve(viewer->second, texts);
    viewer = next;
  }
}

void PageFeeds::Serve(Viewer& viewer, Texts& texts) {
  if (held_) return;
  // Also where there is nothing to send: a stream does not outlive the right to it.
  if (viewer.recheck && !viewer.recheck().ok()) {
    const std::shared_ptr<HttpStream> stream = viewer.stream;
    Forget(stream.get());
    return stream->Close();
  }
  const RevisedParts& parts = pages_.at(viewer.page)->parts();
  if (!viewer.stream->ready() || viewer.told == parts.revision()) return;
  std::string& text = texts[{viewer.page, viewer.told}];
  if (text.empty()) text = parts.Since(viewer.told, sources_.now().unix_ms);
  if (viewer.stream->Send("parts", text)) viewer.told = parts.revision();
}

void PageFeeds::Forget(const HttpStream* stream) {
  const auto gone = viewers_.find(stream);
  if (gone == viewers_.end()) return;
  const PageName page = gone->second.page;
  viewers_.erase(gone);
  // The overview of everything stays: it catches up cheaply for the next viewer.
  const bool looked_at = std::any_of(viewers_.begin(), viewers_.end(), [&](const auto& viewer) {
    return viewer.second.page == page;
  });
  if (page != PageName() && !looked_at) pages_.erase(page);
  if (viewers_.empty()) timer_.Cancel();
}

// Nothing changes in the document of an archived job: what the store has of it is put there once.
void PageFeeds::Show(const JobId& job) {
  sources_.find_job(job.value, [this, alive = alive_, job](const Result<JobView>& view) {
    if (!*alive || !view.ok()) return;
    ReadPast(*view);
    const auto page = pages_.find({job, ""});
    if (!view->archived || page == pages_.end()) return;
    static_cast<JobDocument&>(*page->second).Show(*view, sources_.now());
    NoteNews();
  });
}

void PageFeeds::ReadPast(const JobView& view) {
  if (!histories_.WantsPast(view, sources_.now().mono)) return;
  if (sources_.controller.Users().users->in_force()) {
    const auto node = sources_.controller.LocateLog(view, /*rank=*/0, /*generation=*/0);
    if (!node.ok()) return;
    return ReadMetricsAt(sources_.read_log, *node,
                         [this, alive = alive_, job = view.record->id](StepCurves past) {
                           if (*alive) TakePast(job, std::move(past));
                         });
  }
  const bool taken = reads_.TrySubmit([this, alive = alive_, job = view.record->id,
                                       path = view.record->output_dir + "/metrics.jsonl"] {
    Result<StepCurves> past = ReadMetricsFile(path);
    if (!past.ok()) return;
    loop_.Post([this, alive, job, past = *std::move(past)]() mutable {
      if (*alive) TakePast(job, std::move(past));
    });
  });
  // Only a curve is incomplete then; `metrics.jsonl` has the rest.
  (void)taken;
}

void PageFeeds::TakePast(const JobId& job, StepCurves past) {
  histories_.TakePast(job, std::move(past));
  NoteNews();
}

void PageFeeds::CloseAll() {
  closed_ = true;
  timer_.Cancel();
  while (!viewers_.empty()) {
    const std::shared_ptr<HttpStream> stream = viewers_.begin()->second.stream;
    viewers_.erase(viewers_.begin());
    stream->Close();
  }
}

}  // namespace muster
