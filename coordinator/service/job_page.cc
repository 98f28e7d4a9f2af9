#include "coordinator/service/job_page.h"

#include <charconv>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "common/job_spec/queue_names.h"
#include "coordinator/service/conversions.h"
#include "coordinator/service/list_limits.h"
#include "coordinator/store/commit_queue.h"

namespace muster {
namespace {

constexpr std::int64_t kDayMillis = 24 * 3600 * 1000;

}  // namespace

JobPage::JobPage(v1::ListJobsRequest request, JobFilter filter)
    : request_(std::move(request)),
      filter_(std::move(filter)),
      oldest_end_unix_ms_(SystemClock().UnixMillis() - kDayMillis) {}

Status JobPage::Begin() {
  MUSTER_ASSIGN_OR_RETURN(limit_, PageLimit(request_.limit()));
  if (request_.states_size() > kMaxStates) return TooManyStates();
  for (const std::string* each : {&request_.name(), &request_.owner(), &request_.queue()})
    if (each->size() > kMaxNameFilterBytes)
      return InvalidArgument("names of jobs, owners and queues have 256 bytes at most");
  const std::string& token = request_.page_token();
  if (token.empty()) return OkStatus();
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), before_);
  if (error != std::errc() || end != token.data() + token.size())
    return InvalidArgument("'" + token + "' is no page_token of ListJobs");
  archive_before_ = before_;
  return OkStatus();
}

bool JobPage::Takes(const JobRecord& job) const {
  const bool old = IsTerminal(job.state) && job.ended_unix_ms < oldest_end_unix_ms_;
  const auto is = [](const std::string& wanted, const std::string& value) {
    return wanted.empty() || wanted == value;
  };
  return job.submit_order < before_ && (!old || request_.all()) &&
         HasState(request_.states(), job.state) && is(request_.name(), job.name) &&
         is(request_.owner(), job.owner) && is(request_.queue(), QueueName(job.queue)) &&
         (!filter_ || filter_(job));
}

// The oldest one that belongs to a full page.
std::uint64_t JobPage::Last() const {
  auto last = jobs_.rbegin();
  std::advance(last, limit_ - 1);
  return last->first;
}

void JobPage::Add(const JobView& view, TimePoint now) {
  if (Takes(*view.record))
    jobs_.emplace(view.record->submit_order, ToProto(view, JobDetail::kSummary, now));
}

void JobPage::AddArchived(Store& store, EventLoop& loop, std::function<bool()> wanted,
                          std::function<void(const Status&)> done) {
  auto taken = [self = shared_from_this(), &store, &loop, wanted = std::move(wanted),
                done = std::move(done)](const Result<std::vector<ArchivedRecords>>& read) {
    if (!wanted() || !read.ok()) return done(read.status());
    for (const ArchivedRecords& records : *read) {
      self->archive_before_ = records.job.submit_order;
      self->Add(ArchivedJobView(records).view(), {});
    }
    const bool more = static_cast<int>(read->size()) == CommitQueue::kPageArchived;
    if (more && (!self->IsFull() || self->archive_before_ > self->Last()))
      return self->AddArchived(store, loop, wanted, done);
    done(OkStatus());
  };
  ArchiveQuery query{.before_order = archive_before_, .limit = CommitQueue::kPageArchived};
  store.ReadArchive(std::move(query),
                    [&loop, taken = std::move(taken)](Result<std::vector<ArchivedRecords>> read) {
                      auto shared =
                          std::make_shared<Result<std::vector<ArchivedRecords>>>(std::move(read));
                      loop.Post([taken, shared] { taken(*shared); });
                    });
}

void JobPage::Fill(v1::ListJobsResponse* response) {
  int room = limit_;
  std::uint64_t last_listed = 0;
  for (auto job = jobs_.rbegin(); job != jobs_.rend() && room > 0; ++job, --room) {
    *response->add_jobs() = std::move(job->second);
    last_listed = job->first;
  }
  if (IsFull()) response->set_next_page_token(std::to_string(last_listed));
}

}  // namespace muster
