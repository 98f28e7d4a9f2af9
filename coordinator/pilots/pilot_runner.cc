#include "coordinator/pilots/pilot_runner.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/files.h"
#include "common/slurm/hostlist.h"
#include "common/slurm/sbatch_script.h"
#include "common/telemetry/log.h"

namespace muster {

namespace {

using nlohmann::json;

constexpr Duration kSoon = std::chrono::seconds(10);
constexpr Duration kBeatEvery = std::chrono::seconds(3);
constexpr Duration kBadFor = std::chrono::minutes(30);

std::int64_t UnixMillis() { return SystemClock().UnixMillis(); }

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

PilotPhase PhaseOf(const std::string& state) {
  if (state == "RUNNING" || state == "SUSPENDED" || state == "STOPPED") return PilotPhase::kRunning;
  if (state == "COMPLETING" || state == "STAGE_OUT" || state == "SIGNALING")
    return PilotPhase::kEnding;
  return PilotPhase::kPending;
}

json OrNull(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

}  // namespace

struct PilotRunner::Pilot {
  PilotRecord record;
  PilotPhase phase = PilotPhase::kSubmitting;
  std::string state = "SUBMITTING";  // Slurm's word
  std::string reason;
  std::vector<std::string> nodes;
  std::optional<std::int64_t> start_seconds;
  std::optional<std::int64_t> end_seconds;
  bool submitting = false;       // sbatch is under way
  bool connected = false;        // a node of it has come
  std::set<std::string> tokens;  // nodes that were given one
  bool cancel_sent = false;
};

// What the pool's thread found.
struct PilotRunner::PollResult {
  Result<std::string> config = NotFound("");
  std::optional<Result<std::vector<PilotRecord>>> loaded;
  std::set<std::string> started;
  std::optional<Result<std::vector<slurm::JobInfo>>> jobs;
  Status beat;
};

PilotRunner::PilotRunner(EventLoop& loop, PilotRunnerOptions options, PilotHooks hooks)
    : loop_(loop),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      files_(std::make_shared<PilotFiles>(slurm::SlurmCommands(options_.environment), options_.user,
                                          options_.security_dir)),
      timer_(loop) {}

PilotRunner::~PilotRunner() { *alive_ = false; }

void PilotRunner::Start() { SchedulePoll(Duration::zero()); }

template <typename T>
void PilotRunner::OnPool(std::function<T()> work, std::function<void(const T&)> done) {
  const bool taken = pool_.TrySubmit([this, work = std::move(work), done, alive = alive_] {
    auto result = std::make_shared<const T>(work());
    loop_.Post([result, done, alive] {
      if (*alive) done(*result);
    });
  });
  if (!taken) done(T(ResourceExhausted("too many of Slurm's commands wait")));
}

// --- looking ---

void PilotRunner::SchedulePoll(Duration delay) {
  timer_.Start(delay, [this] {
    const TimePoint now = SystemClock().Now();
    const bool soon = now < soon_until_;
    const bool active = config_ && loaded_;
    const bool list =
        active &&
        (!listed_at_ || now - *listed_at_ >= (soon ? options_.list_soon : options_.list_every));
    const bool beat = active && now - beat_at_ >= kBeatEvery;
    if (list) listed_at_ = now;
    if (beat) beat_at_ = now;
    std::vector<std::string> waiting;
    for (const auto& [key, pilot] : pilots_)
      if (pilot->phase != PilotPhase::kRunning) waiting.push_back(key);
    const auto work = [files = files_, file = options_.config_file, load = config_ && !loaded_,
                       list, beat, waiting] {
      auto look = std::make_shared<PollResult>();
      look->config = ReadFile(file, 1 << 20);
      if (load) look->loaded = files->Load();
      if (beat) look->beat = files->Heartbeat(UnixMillis());
      for (const std::string& key : waiting)
        if (files->HasStarted(key)) look->started.insert(key);
      if (list) look->jobs = files->List();
      return look;
    };
    const bool taken = pool_.TrySubmit([this, work, alive = alive_] {
      auto look = work();
      loop_.Post([this, look, alive] {
        if (*alive) ApplyPollResult(*look);
      });
    });
    if (!taken) SchedulePoll(options_.look_every);
  });
}

void PilotRunner::ApplyPollResult(PollResult& look) {
  TakeConfig(look);
  if (look.loaded) {
    Problem("reading what earlier coordinators left", look.loaded->status());
    if (look.loaded->ok()) TakeLoaded(*std::move(*look.loaded));
  }
  Problem("renewing " + files_->pool() + "/alive", look.beat);
  const TimePoint now = SystemClock().Now();
  for (const std::string& key : look.started) {
    const auto found = pilots_.find(key);
    if (found != pilots_.end() && found->second->phase == PilotPhase::kPending)
      soon_until_ = now + kSoon;
  }
  if (look.jobs) {
    Problem("asking Slurm for the pilots", look.jobs->status());
    if (look.jobs->ok()) TakeJobs(**look.jobs);
    listed_once_ = listed_once_ || look.jobs->ok();
  }
  if (listed_once_) {
    const PoolFacts facts = Facts();
    ObserveNodes(facts);
    const PoolPlan plan = planner_.Plan(facts, now);
    condition_ = plan.condition;
    Act(plan);
  }
  if (listed_once_ || !problems_.empty()) WriteStatus();
  SchedulePoll(options_.look_every);
}

void PilotRunner::TakeConfig(const PollResult& look) {
  if (!look.config.ok()) {
    // Whoever removes the file wants no other pool yet.
    if (config_ || look.config.status().code() != StatusCode::kNotFound)
      Problem("reading " + options_.config_file, look.config.status());
    return;
  }
  Problem("reading " + options_.config_file, OkStatus());
  if (*look.config == config_text_) return;
  config_text_ = *look.config;
  const auto parsed = ParsePoolConfig(config_text_, options_.config_file);
  Problem("the pilots' settings", parsed.status());
  if (!parsed.ok()) return;
  const std::string pool = parsed->directory.empty() ? options_.dir + "/pilots" : parsed->directory;
  if (options_.coordinator.empty() || options_.security_dir.empty())
    return Problem("pilots", FailedPrecondition("they come by TLS: start the coordinator with "
                                                "--tls-listen IP:PORT after muster init"));
  const std::string& dialled =
      parsed->coordinator.empty() ? options_.coordinator : parsed->coordinator;
  if (const Status status = CheckDialBack(dialled); !status.ok()) return Problem("pilots", status);
  if (config_ && pool != files_->pool())
    return Problem("the pilots' settings",
                   FailedPrecondition("directory cannot change while the coordinator runs"));
  if (!config_) {
    if (const Status opened = files_->Open(pool); !opened.ok()) {
      config_text_.clear();  // once more with the next look
      return Problem("the pilots' directory", opened);
    }
    Problem("the pilots' directory", OkStatus());
  }
  config_ = *parsed;
  planner_.SetConfig(*parsed);
  Log().info("pilots: {} to {} nodes, {} spare, by {}", config_->min_nodes, config_->max_nodes,
             config_->spares, options_.config_file);
}

void PilotRunner::TakeLoaded(std::vector<PilotRecord> records) {
  const TimePoint now = SystemClock().Now();
  const std::int64_t unix_ms = UnixMillis();
  for (PilotRecord& record : records) {
    const auto since = std::chrono::milliseconds(unix_ms - record.cancelled_unix_ms);
    for (const std::string& node : record.bad_nodes) bad_until_[node] = now + kBadFor - since;
    if (!record.ended.empty()) {
      over_.insert(record.key);
      continue;
    }
    auto pilot = std::make_unique<Pilot>();
    // What became of its nodes meanwhile is not known, and no failure of Slurm's.
    pilot->connected = record.slurm_job_id != 0;
    pilot->record = std::move(record);
    if (!pilot->record.cancelled.empty()) pilot->phase = PilotPhase::kEnding;
    pilots_[pilot->record.key] = std::move(pilot);
  }
  loaded_ = true;
  if (!pilots_.empty()) Log().info("pilots: {} of an earlier coordinator", pilots_.size());
}

// --- what Slurm says ---

void PilotRunner::TakeJobs(const std::vector<slurm::JobInfo>& jobs) {
  std::set<std::string> listed;
  for (const slurm::JobInfo& job : jobs) {
    if (const auto comment = slurm::ParseComment(job.comment)) listed.insert(comment->key);
    TakeJob(job);
  }
  SettleUnknown(listed);
}

void PilotRunner::TakeJob(const slurm::JobInfo& job) {
  const auto comment = slurm::ParseComment(job.comment);
  if (!comment) return;
  const bool final = slurm::IsFinalState(job.state);
  const auto found = pilots_.find(comment->key);
  if (found == pilots_.end()) {
    if (!final && job.state != "COMPLETING")
      CancelStray(job.id, "nobody knows the pilot " + comment->key);
    return;
  }
  Pilot& pilot = *found->second;
  if (pilot.record.slurm_job_id == 0 && !final) pilot.record.slurm_job_id = job.id;
  if (pilot.record.slurm_job_id == job.id) {
    Update(pilot, job);
    if (final) return End(comment->key, job.state);
    if (!pilot.record.cancelled.empty() && !pilot.cancel_sent) Cancel(pilot);
  } else if (!final && pilot.record.slurm_job_id != 0) {
    CancelStray(job.id, "the pilot " + comment->key + " has a Slurm job already");
  }
}

void PilotRunner::Update(Pilot& pilot, const slurm::JobInfo& job) {
  const PilotPhase before = pilot.phase;
  pilot.state = job.state;
  pilot.reason = job.reason;
  pilot.start_seconds = job.start_unix_seconds;
  pilot.end_seconds = job.end_unix_seconds;
  if (auto nodes = slurm::ExpandHostlist(job.nodes); nodes.ok() && !nodes->empty())
    pilot.nodes = *std::move(nodes);
  const PilotPhase phase = PhaseOf(job.state);
  pilot.phase = pilot.record.cancelled.empty() ? phase : PilotPhase::kEnding;
  if (phase == PilotPhase::kRunning && pilot.phase == phase && before != phase)
    RecordEvent("pilot_started", Severity::kInfo,
                "pilot " + pilot.record.key + " (Slurm job " + std::to_string(job.id) +
                    ") runs on " + job.nodes);
}

void PilotRunner::CancelStray(std::uint64_t id, const std::string& why) {
  if (!strays_.insert(id).second) return;
  Log().warn("pilots: Slurm job {} is cancelled: {}", id, why);
  OnPool<Status>([files = files_, id] { return files->CancelStray(id); },
                 [this, id](const Status& status) {
                   Problem("cancelling Slurm job " + std::to_string(id), status);
                   if (!status.ok()) strays_.erase(id);
                 });
}

// Pilots that Slurm does not list: forgotten since they ended, or not taken when its answer was
// lost or the coordinator was killed. The latter are submitted once more, which makes no second job
// of a key; should one come late all the same, it is a stray.
void PilotRunner::SettleUnknown(const std::set<std::string>& listed) {
  std::vector<std::string> gone;
  for (const auto& [key, pilot] : pilots_) {
    if (listed.contains(key) || pilot->submitting) continue;
    const bool wanted = pilot->record.slurm_job_id == 0 && pilot->record.cancelled.empty();
    wanted ? Submit(*pilot) : gone.push_back(key);
  }
  for (const std::string& key : gone) End(key, "FORGOTTEN");
}

void PilotRunner::End(const std::string& key, const std::string& state) {
  const std::unique_ptr<Pilot> pilot = std::move(pilots_.at(key));
  pilots_.erase(key);
  over_.insert(key);
  pilot->record.ended = state;
  const bool failed = !pilot->connected && pilot->record.cancelled.empty();
  std::string text = "pilot " + key + " (Slurm job " + std::to_string(pilot->record.slurm_job_id) +
                     ") has ended: " + Lower(state);
  if (!pilot->record.cancelled.empty()) text += "; " + pilot->record.cancelled;
  if (failed) {
    planner_.OnFailure(SystemClock().Now());
    failure_ = text + " before its node came; see " + files_->pool() + "/" + key;
    text = failure_;
  }
  RecordEvent("pilot_ended", failed ? Severity::kWarning : Severity::kInfo, text);
  OnPool<Status>(
      [files = files_, record = pilot->record, nodes = pilot->nodes] {
        return files->End(record, nodes, UnixMillis());
      },
      [this, key](const Status& status) { Problem("putting pilot " + key + " away", status); });
}

// --- deciding ---

PoolFacts PilotRunner::Facts() {
  PoolFacts facts = hooks_.facts();
  const double unix_seconds = static_cast<double>(UnixMillis()) / 1000;
  for (const auto& [key, pilot] : pilots_) {
    PilotFact fact{key, pilot->phase, {}, pilot->record.exclude, 0, {}};
    if (pilot->phase == PilotPhase::kRunning) {
      fact.nodes = pilot->nodes;
      if (pilot->start_seconds)
        fact.seconds_running =
            std::max(0.0, unix_seconds - static_cast<double>(*pilot->start_seconds));
      if (pilot->end_seconds)
        fact.seconds_left = static_cast<double>(*pilot->end_seconds) - unix_seconds;
    }
    facts.pilots.push_back(std::move(fact));
  }
  const TimePoint now = SystemClock().Now();
  std::erase_if(bad_until_, [now](const auto& bad) { return bad.second <= now; });
  for (const auto& [node, until] : bad_until_) facts.avoid.push_back(node);
  return facts;
}

void PilotRunner::ObserveNodes(const PoolFacts& facts) {
  for (auto& [key, pilot] : pilots_) {
    if (pilot->phase != PilotPhase::kRunning) continue;
    const bool there = std::any_of(facts.nodes.begin(), facts.nodes.end(),
                                   [&key](const PoolNodeFact& node) { return node.pilot == key; });
    if (there && !std::exchange(pilot->connected, true)) {
      planner_.OnSuccess();
      failure_.clear();
    }
    GiveTokens(*pilot, facts);
  }
}

void PilotRunner::GiveTokens(Pilot& pilot, const PoolFacts& facts) {
  const std::string key = pilot.record.key;
  for (const std::string& name : pilot.nodes) {
    const bool joined = std::any_of(
        facts.nodes.begin(), facts.nodes.end(),
        [&](const PoolNodeFact& node) { return node.name == name && node.pilot == key; });
    if (joined || !pilot.tokens.insert(name).second) continue;
    OnPool<Status>(
        [files = files_, key, name] { return files->GiveToken(key, name, UnixMillis()); },
        [this, key, name](const Status& status) {
          Problem("making a join token for node " + name, status);
          const auto found = pilots_.find(key);
          if (!status.ok() && found != pilots_.end()) found->second->tokens.erase(name);
        });
  }
}

void PilotRunner::Act(const PoolPlan& plan) {
  for (const PoolAction& action : plan.actions) {
    if (const auto* submit = std::get_if<SubmitPilot>(&action)) Do(*submit);
    if (const auto* cancel = std::get_if<CancelPilot>(&action)) Do(*cancel);
    if (const auto* drain = std::get_if<DrainPoolNode>(&action)) hooks_.drain(*drain);
  }
  if (!plan.actions.empty()) soon_until_ = SystemClock().Now() + kSoon;
}

void PilotRunner::Do(const SubmitPilot& action) {
  auto pilot = std::make_unique<Pilot>();
  const std::int64_t unix_ms = UnixMillis();
  // In the order of time for people; the process makes it unique.
  pilot->record = {.key = "p" + std::to_string(unix_ms) + "-" + std::to_string(::getpid()) + "-" +
                          std::to_string(++next_key_),
                   .why = action.why,
                   .exclude = action.exclude,
                   .asked_unix_ms = unix_ms};
  Submit(*pilot);
  pilots_[pilot->record.key] = std::move(pilot);
}

void PilotRunner::Submit(Pilot& pilot) {
  pilot.submitting = true;
  const std::string coordinator =
      config_->coordinator.empty() ? options_.coordinator : config_->coordinator;
  OnPool<Result<std::uint64_t>>(
      [files = files_, record = pilot.record, config = *config_, coordinator] {
        return files->Submit(record, config, coordinator);
      },
      [this, key = pilot.record.key](const Result<std::uint64_t>& id) { Submitted(key, id); });
}

void PilotRunner::Submitted(const std::string& key, const Result<std::uint64_t>& id) {
  const auto found = pilots_.find(key);
  if (found == pilots_.end()) return;
  Pilot& pilot = *found->second;
  pilot.submitting = false;
  if (id.ok()) {
    pilot.record.slurm_job_id = *id;
    if (pilot.record.cancelled.empty()) pilot.phase = PilotPhase::kPending;
    pilot.state = "PENDING";
    RecordEvent("pilot_submitted", Severity::kInfo,
                "pilot " + key + " is Slurm job " + std::to_string(*id) + ": " + pilot.record.why);
    if (!pilot.record.cancelled.empty()) Cancel(pilot);
    return;
  }
  Problem("submitting a pilot", id.status());
  // There may be one all the same: Slurm's list tells.
  if (id.status().code() == StatusCode::kDeadlineExceeded) return;
  End(key, "REFUSED");
  failure_ = "a pilot was refused: " + id.status().message();
}

void PilotRunner::Do(const CancelPilot& action) {
  Pilot& pilot = *pilots_.at(action.key);
  const TimePoint now = SystemClock().Now();
  pilot.record.cancelled = action.why;
  pilot.record.bad_nodes = action.bad_nodes;
  pilot.record.cancelled_unix_ms = UnixMillis();
  pilot.phase = PilotPhase::kEnding;
  for (const std::string& node : action.bad_nodes) bad_until_[node] = now + kBadFor;
  RecordEvent("pilot_cancelled", action.bad_nodes.empty() ? Severity::kInfo : Severity::kWarning,
              "pilot " + action.key + " is cancelled: " + action.why);
  Cancel(pilot);
}

// Until Slurm has heard it: repeated with each list in which the job still is.
void PilotRunner::Cancel(Pilot& pilot) {
  pilot.cancel_sent = pilot.record.slurm_job_id != 0;
  OnPool<Status>([files = files_, record = pilot.record] { return files->Cancel(record); },
                 [this, key = pilot.record.key](const Status& status) {
                   Problem("cancelling pilot " + key, status);
                   const auto found = pilots_.find(key);
                   if (!status.ok() && found != pilots_.end()) found->second->cancel_sent = false;
                 });
}

// --- telling ---

void PilotRunner::RecordEvent(const char* kind, Severity severity, std::string message) {
  hooks_.note({kind, severity, std::move(message)});
}

void PilotRunner::Problem(const std::string& what, const Status& status) {
  if (status.ok()) {
    problems_.erase(what);
    return;
  }
  std::string& told = problems_[what];
  if (told != status.message()) Log().error("pilots: {}: {}", what, status.message());
  told = status.message();
}

void PilotRunner::WriteStatus() {
  counts_.clear();
  json list = json::array();
  for (const auto& [key, pilot] : pilots_) {
    const std::string state =
        pilot->record.cancelled.empty() ? Lower(pilot->state) : std::string("ending");
    ++counts_[state];
    list.push_back(
        {{"key", key},
         {"slurm_job_id",
          pilot->record.slurm_job_id == 0 ? json(nullptr) : json(pilot->record.slurm_job_id)},
         {"state", state},
         {"reason",
          OrNull(pilot->record.cancelled.empty() ? pilot->reason : pilot->record.cancelled)},
         {"nodes", OrNull(slurm::CompressHostlist(pilot->nodes))},
         {"why", pilot->record.why},
         {"asked_unix_ms", pilot->record.asked_unix_ms},
         {"ends_unix_ms", pilot->end_seconds && pilot->phase == PilotPhase::kRunning
                              ? json(*pilot->end_seconds * 1000)
                              : json(nullptr)}});
  }
  std::vector<std::string> conditions;
  for (const std::string& text : {condition_, failure_})
    if (!text.empty()) conditions.push_back(text);
  for (const auto& [what, message] : problems_) conditions.push_back(what + ": " + message);
  std::string text = json{{"pilots", std::move(list)}, {"conditions", conditions}}.dump(1) + "\n";
  if (text == status_text_) return;
  status_text_ = text;
  OnPool<Status>(
      [file = options_.status_file, text] { return WriteFileAtomically(file, text, 0600); },
      [this](const Status& status) { Problem("writing " + options_.status_file, status); });
}

}  // namespace muster
