#include "coordinator/pilots/pilot_pool.h"

#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "common/base/strings.h"
#include "common/slurm/hostlist.h"
#include "common/slurm/sbatch_script.h"

namespace muster {
namespace {

using nlohmann::json;

constexpr Duration kSoon = std::chrono::seconds(10);
constexpr Duration kRenewEvery = std::chrono::seconds(3);
constexpr Duration kBadFor = std::chrono::minutes(30);

PilotPhase PhaseOf(const std::string& state) {
  if (state == "RUNNING" || state == "SUSPENDED" || state == "STOPPED") return PilotPhase::kRunning;
  if (state == "COMPLETING" || state == "STAGE_OUT" || state == "SIGNALING")
    return PilotPhase::kEnding;
  return PilotPhase::kPending;
}

json OrNull(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

}  // namespace

std::vector<PoolEffect> PilotPool::Handle(const PoolEvent& event, Now now) {
  now_ = now;
  std::visit([this](const auto& one) { On(one); }, event);
  return std::exchange(out_, {});
}

template <typename Effect>
void PilotPool::Begin(Effect effect) {
  ++under_way_;
  out_.push_back(std::move(effect));
}

// --- looking ---

void PilotPool::On(const PoolLookDue&) {
  const bool soon = now_.mono < soon_until_;
  const bool active = opened_ && loaded_;
  LookAtPool look{.open = config_ && !opened_ ? directory_ : "", .load = config_ && !loaded_};
  look.list = active && (!listed_at_ || now_.mono - *listed_at_ >=
                                            (soon ? options_.list_soon : options_.list_every));
  look.renew = active && now_.mono - renewed_at_ >= kRenewEvery;
  if (look.list) listed_at_ = now_.mono;
  if (look.renew) renewed_at_ = now_.mono;
  for (const auto& [key, pilot] : pilots_)
    if (pilot.phase != PilotPhase::kRunning) look.waiting.push_back(key);
  out_.push_back(std::move(look));
}

void PilotPool::On(const PoolLooked& look) {
  if (config_ && !opened_) {
    Problem("the pilots' directory", look.opened);
    opened_ = look.opened.ok();
  }
  if (look.loaded && opened_) {
    Problem("reading what earlier coordinators left", look.loaded->status());
    if (look.loaded->ok()) TakeLoaded(**look.loaded);
  }
  TakeConfig(look.config);
  Problem("renewing " + directory_ + "/alive", look.renewed);
  for (const std::string& key : look.started) {
    const auto found = pilots_.find(key);
    if (found != pilots_.end() && found->second.phase == PilotPhase::kPending)
      soon_until_ = now_.mono + kSoon;
  }
  if (look.jobs) {
    Problem("asking Slurm for the pilots", look.jobs->status());
    if (look.jobs->ok()) TakeJobs(**look.jobs);
    listed_once_ = listed_once_ || look.jobs->ok();
  }
  if (listed_once_) {
    PoolFacts facts = look.facts;
    AddPilots(facts);
    ObserveNodes(facts);
    const PoolPlan plan = planner_.Plan(facts, now_.mono);
    condition_ = plan.condition;
    Act(plan);
    PutAway();
  }
  if (listed_once_ || !problems_.empty()) WriteStatus();
}

void PilotPool::TakeConfig(const Result<std::string>& text) {
  const std::string reading = "reading " + options_.config_file;
  if (!text.ok()) {
    // Without the file there is no pool at first; an existing pool stays as it is.
    if (config_ || text.status().code() != StatusCode::kNotFound) Problem(reading, text.status());
    return;
  }
  Problem(reading, OkStatus());
  if (*text == config_text_) return;
  config_text_ = *text;
  const auto parsed = ParsePoolConfig(config_text_, options_.config_file);
  Problem("the pilots' settings", parsed.status());
  if (!parsed.ok()) return;
  const std::string directory =
      parsed->directory.empty() ? options_.dir + "/pilots" : parsed->directory;
  if (options_.coordinator.empty() || options_.join_address.empty() || !options_.has_authority)
    return Problem("pilots",
                   FailedPrecondition("they join by TLS: start the coordinator with --tls-listen "
                                      "IP:PORT and --join-listen IP:PORT after muster init"));
  const std::string& dialled =
      parsed->coordinator.empty() ? options_.coordinator : parsed->coordinator;
  const Status dial_back = CheckDialBack(dialled);
  Problem("pilots", dial_back);
  if (!dial_back.ok()) return;
  if (opened_ && directory != directory_)
    return Problem("the pilots' settings",
                   FailedPrecondition("directory cannot change while the coordinator runs"));
  directory_ = directory;
  config_ = *parsed;
  out_.push_back(
      PoolDeclared{.slots = config_->node ? config_->declared_slots() : 0, .node = config_->node});
  planner_.SetConfig(*parsed);
  out_.push_back(PoolLogLine{Severity::kInfo, "pilots: " + std::to_string(config_->min_nodes) +
                                                  " to " + std::to_string(config_->max_nodes) +
                                                  " nodes, " + std::to_string(config_->spares) +
                                                  " spare, by " + options_.config_file});
}

void PilotPool::TakeLoaded(const std::vector<PilotRecord>& records) {
  for (const PilotRecord& record : records) {
    const auto since = std::chrono::milliseconds(now_.unix_ms - record.cancelled_unix_ms);
    for (const std::string& node : record.bad_nodes) bad_until_[node] = now_.mono + kBadFor - since;
    if (!record.ended.empty()) continue;
    Pilot& pilot = pilots_[record.key];
    // The state of its nodes is unknown in the meantime; this is not a failure of Slurm.
    pilot.connected = record.slurm_job_id != 0;
    pilot.record = record;
    if (!record.cancelled.empty()) pilot.phase = PilotPhase::kEnding;
  }
  loaded_ = true;
  if (!pilots_.empty())
    out_.push_back(PoolLogLine{Severity::kInfo, "pilots: " + std::to_string(pilots_.size()) +
                                                    " of an earlier coordinator"});
}

// --- what Slurm reports ---

void PilotPool::TakeJobs(const std::vector<slurm::JobInfo>& jobs) {
  std::set<std::string> listed;
  std::map<std::uint64_t, Stray> strays;
  for (const slurm::JobInfo& job : jobs) {
    if (const auto comment = slurm::ParseComment(job.comment)) listed.insert(comment->key);
    TakeJob(job, &strays);
  }
  strays_ = std::move(strays);
  SettleUnknown(listed);
}

void PilotPool::TakeJob(const slurm::JobInfo& job, std::map<std::uint64_t, Stray>* strays) {
  const auto comment = slurm::ParseComment(job.comment);
  if (!comment) return;
  const bool final = slurm::IsFinalState(job.state);
  const auto found = pilots_.find(comment->key);
  if (found == pilots_.end()) {
    if (!final && job.state != "COMPLETING")
      CancelStray(job.id, "no pilot " + comment->key + " is known", strays);
    return;
  }
  Pilot& pilot = found->second;
  if (pilot.record.slurm_job_id == 0 && !final) pilot.record.slurm_job_id = job.id;
  if (pilot.record.slurm_job_id == job.id) {
    Update(pilot, job);
    if (final) return End(comment->key, job.state);
    if (!pilot.record.cancelled.empty() && !pilot.cancel_sent) Cancel(pilot);
  } else if (!final && pilot.record.slurm_job_id != 0) {
    CancelStray(job.id, "the pilot " + comment->key + " has a Slurm job already", strays);
  }
}

void PilotPool::Update(Pilot& pilot, const slurm::JobInfo& job) {
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
    Note("pilot_started", Severity::kInfo,
         "pilot " + pilot.record.key + " (Slurm job " + std::to_string(job.id) + ") runs on " +
             job.nodes);
}

// Once for each job that Slurm lists, and again with the next list if that failed.
void PilotPool::CancelStray(std::uint64_t id, const std::string& why,
                            std::map<std::uint64_t, Stray>* strays) {
  const auto known = strays_.find(id);
  Stray& stray = (*strays)[id];
  if (known != strays_.end()) stray = known->second;
  if (stray.sent || !HasRoom()) return;
  stray.sent = true;
  out_.push_back(PoolLogLine{Severity::kWarning,
                             "pilots: Slurm job " + std::to_string(id) + " is cancelled: " + why});
  Begin(CancelStrayJob{id});
}

void PilotPool::On(const StrayCancelled& event) {
  --under_way_;
  const auto found = strays_.find(event.slurm_job_id);
  if (found == strays_.end()) return;
  Report(found->second.trouble, "cancelling Slurm job " + std::to_string(event.slurm_job_id),
         event.status);
  found->second.sent = event.status.ok();
}

// Pilots that Slurm does not list: it has dropped them since they ended, or did not accept them
// when its answer was lost or the coordinator was killed. The latter are submitted once more, which
// makes no second job of a key; if one appears late anyway, it is a stray.
void PilotPool::SettleUnknown(const std::set<std::string>& listed) {
  std::vector<std::string> gone;
  for (auto& [key, pilot] : pilots_) {
    if (listed.contains(key) || pilot.submitting) continue;
    const bool wanted = pilot.record.slurm_job_id == 0 && pilot.record.cancelled.empty();
    if (!wanted) {
      gone.push_back(key);
    } else if (HasRoom()) {
      Submit(pilot);
    }
  }
  for (const std::string& key : gone) End(key, "FORGOTTEN");
}

void PilotPool::End(const std::string& key, const std::string& state) {
  Pilot pilot = std::move(pilots_.at(key));
  pilots_.erase(key);
  pilot.record.ended = state;
  const bool failed = !pilot.connected && pilot.record.cancelled.empty();
  std::string text = "pilot " + key + " (Slurm job " + std::to_string(pilot.record.slurm_job_id) +
                     ") has ended: " + AsciiLower(state);
  if (!pilot.record.cancelled.empty()) text += "; " + pilot.record.cancelled;
  if (failed) {
    planner_.OnFailure(now_.mono);
    failure_ = text + " before its node came; see " + directory_ + "/" + key;
    text = failure_;
  }
  Note("pilot_ended", failed ? Severity::kWarning : Severity::kInfo, text);
  ended_[key] = {.what = {std::move(pilot.record), std::move(pilot.nodes)}};
  PutAway();
}

// Retried until it is done, because it revokes certificates.
void PilotPool::PutAway() {
  for (auto& [key, ended] : ended_) {
    if (!HasRoom()) return;
    if (!std::exchange(ended.under_way, true)) Begin(ended.what);
  }
}

void PilotPool::On(const PilotPutAway& event) {
  --under_way_;
  if (event.status.ok()) {
    ended_.erase(event.key);
    return;
  }
  Ended& ended = ended_.at(event.key);
  ended.under_way = false;
  Report(ended.trouble, "putting pilot " + event.key + " away", event.status);
}

// --- deciding ---

void PilotPool::AddPilots(PoolFacts& facts) {
  const double unix_seconds = static_cast<double>(now_.unix_ms) / 1000;
  for (const auto& [key, pilot] : pilots_) {
    PilotFact fact{key, pilot.phase, {}, pilot.record.exclude, 0, {}};
    if (pilot.phase == PilotPhase::kRunning) {
      fact.nodes = pilot.nodes;
      if (pilot.start_seconds)
        fact.seconds_running =
            std::max(0.0, unix_seconds - static_cast<double>(*pilot.start_seconds));
      if (pilot.end_seconds)
        fact.seconds_left = static_cast<double>(*pilot.end_seconds) - unix_seconds;
    }
    facts.pilots.push_back(std::move(fact));
  }
  std::erase_if(bad_until_, [this](const auto& bad) { return bad.second <= now_.mono; });
  for (const auto& [node, until] : bad_until_) facts.avoid.push_back(node);
}

void PilotPool::ObserveNodes(const PoolFacts& facts) {
  for (auto& [key, pilot] : pilots_) {
    if (pilot.phase != PilotPhase::kRunning) continue;
    const bool there = std::any_of(facts.nodes.begin(), facts.nodes.end(),
                                   [&](const PoolNodeFact& node) { return node.pilot == key; });
    if (there && !std::exchange(pilot.connected, true)) {
      planner_.OnSuccess();
      failure_.clear();
    }
    GiveTokens(pilot, facts);
  }
}

void PilotPool::GiveTokens(Pilot& pilot, const PoolFacts& facts) {
  const std::string& key = pilot.record.key;
  for (const std::string& name : pilot.nodes) {
    const bool joined = std::any_of(
        facts.nodes.begin(), facts.nodes.end(),
        [&](const PoolNodeFact& node) { return node.name == name && node.pilot == key; });
    if (!joined && HasRoom() && pilot.tokens.insert(name).second)
      Begin(GivePilotToken{key, name, options_.join_address});
  }
}

void PilotPool::On(const PilotTokenGiven& event) {
  --under_way_;
  const auto found = pilots_.find(event.key);
  if (found == pilots_.end()) return;
  Report(found->second.trouble, "making a join token for node " + event.node, event.status);
  if (!event.status.ok()) found->second.tokens.erase(event.node);
}

void PilotPool::Act(const PoolPlan& plan) {
  for (const PoolAction& action : plan.actions) {
    if (const auto* submit = std::get_if<SubmitPilot>(&action)) Do(*submit);
    if (const auto* cancel = std::get_if<CancelPilot>(&action)) Do(*cancel);
    if (const auto* drain = std::get_if<DrainPoolNode>(&action)) out_.push_back(*drain);
  }
  if (!plan.actions.empty()) soon_until_ = now_.mono + kSoon;
}

void PilotPool::Do(const SubmitPilot& action) {
  if (ended_.size() >= kMaxEnded) {
    condition_ = std::to_string(ended_.size()) +
                 " ended pilots could not be removed, so no more are submitted";
    return;
  }
  if (!HasRoom()) return;  // the next plan asks again
  Pilot pilot;
  // Ordered by time for people; the process makes it unique.
  pilot.record = {.key = "p" + std::to_string(now_.unix_ms) + "-" + options_.process + "-" +
                         std::to_string(++next_key_),
                  .why = action.why,
                  .exclude = action.exclude,
                  .asked_unix_ms = now_.unix_ms};
  Submit(pilot);
  pilots_.emplace(pilot.record.key, pilot);
}

void PilotPool::Submit(Pilot& pilot) {
  pilot.submitting = true;
  Begin(SubmitPilotJob{pilot.record, *config_,
                       config_->coordinator.empty() ? options_.coordinator : config_->coordinator});
}

void PilotPool::On(const PilotSubmitted& event) {
  --under_way_;
  const Result<std::uint64_t>& id = event.slurm_job_id;
  Problem("submitting a pilot", id.status());
  const auto found = pilots_.find(event.key);
  if (found == pilots_.end()) return;
  Pilot& pilot = found->second;
  pilot.submitting = false;
  if (id.ok()) {
    pilot.record.slurm_job_id = *id;
    if (pilot.record.cancelled.empty()) pilot.phase = PilotPhase::kPending;
    pilot.state = "PENDING";
    Note("pilot_submitted", Severity::kInfo,
         "pilot " + event.key + " is Slurm job " + std::to_string(*id) + ": " + pilot.record.why);
    if (!pilot.record.cancelled.empty()) Cancel(pilot);
    return;
  }
  // There may be one anyway: Slurm's list shows it.
  if (id.status().code() == StatusCode::kDeadlineExceeded) return;
  End(event.key, "REFUSED");
  failure_ = "a pilot was refused: " + id.status().message();
}

void PilotPool::Do(const CancelPilot& action) {
  Pilot& pilot = pilots_.at(action.key);
  pilot.record.cancelled = action.why;
  pilot.record.bad_nodes = action.bad_nodes;
  pilot.record.cancelled_unix_ms = now_.unix_ms;
  pilot.phase = PilotPhase::kEnding;
  for (const std::string& node : action.bad_nodes) bad_until_[node] = now_.mono + kBadFor;
  Note("pilot_cancelled", action.bad_nodes.empty() ? Severity::kInfo : Severity::kWarning,
       "pilot " + action.key + " is cancelled: " + action.why);
  Cancel(pilot);
}

// Repeated with each list in which the job still is, until scancel has succeeded.
void PilotPool::Cancel(Pilot& pilot) {
  if (!HasRoom()) return;
  pilot.cancel_sent = pilot.record.slurm_job_id != 0;
  Begin(CancelPilotJob{pilot.record});
}

void PilotPool::On(const PilotCancelled& event) {
  --under_way_;
  const auto found = pilots_.find(event.key);
  if (found == pilots_.end()) return;
  Report(found->second.trouble, "cancelling pilot " + event.key, event.status);
  if (!event.status.ok()) found->second.cancel_sent = false;
}

// --- the status file ---

void PilotPool::Note(const char* kind, Severity severity, std::string message) {
  out_.push_back(ClusterNote{.kind = kind, .severity = severity, .message = std::move(message)});
}

void PilotPool::Report(std::string& trouble, const std::string& what, const Status& status) {
  const std::string text = status.ok() ? "" : what + ": " + status.message();
  if (!status.ok() && trouble != text)
    out_.push_back(PoolLogLine{Severity::kError, "pilots: " + text});
  trouble = text;
}

void PilotPool::Problem(const std::string& what, const Status& status) {
  std::string& trouble = problems_[what];
  Report(trouble, what, status);
  if (trouble.empty()) problems_.erase(what);
}

std::string PilotPool::StateOf(const Pilot& pilot) const {
  return pilot.record.cancelled.empty() ? AsciiLower(pilot.state) : "ending";
}

std::vector<std::string> PilotPool::PendingFor(const JobId& job) const {
  std::vector<std::string> keys;
  for (const auto& [key, pilot] : pilots_) {
    const bool pending =
        pilot.phase != PilotPhase::kEnding && !pilot.connected && pilot.record.cancelled.empty();
    if (pending && pilot.record.why.starts_with(WhatLacks(job))) keys.push_back(key);
  }
  return keys;
}

std::map<std::string, int> PilotPool::Counts() const {
  std::map<std::string, int> counts;
  for (const auto& [key, pilot] : pilots_) ++counts[StateOf(pilot)];
  return counts;
}

void PilotPool::WriteStatus() {
  if (writing_status_) return;
  std::set<std::string> troubles;
  json list = json::array();
  for (const auto& [key, pilot] : pilots_) {
    troubles.insert(pilot.trouble);
    const PilotRecord& record = pilot.record;
    const bool runs = pilot.end_seconds && pilot.phase == PilotPhase::kRunning;
    list.push_back(
        {{"key", key},
         {"slurm_job_id", record.slurm_job_id == 0 ? json(nullptr) : json(record.slurm_job_id)},
         {"state", StateOf(pilot)},
         {"reason", OrNull(record.cancelled.empty() ? pilot.reason : record.cancelled)},
         {"nodes", OrNull(slurm::CompressHostlist(pilot.nodes))},
         {"why", record.why},
         {"asked_unix_ms", record.asked_unix_ms},
         {"ends_unix_ms", runs ? json(*pilot.end_seconds * 1000) : json(nullptr)}});
  }
  for (const auto& [key, ended] : ended_) troubles.insert(ended.trouble);
  for (const auto& [id, stray] : strays_) troubles.insert(stray.trouble);
  std::vector<std::string> conditions = {condition_, failure_};
  for (const auto& [what, trouble] : problems_) conditions.push_back(trouble);
  conditions.insert(conditions.end(), troubles.begin(), troubles.end());
  std::erase(conditions, "");
  std::string text = json{{"pilots", std::move(list)}, {"conditions", conditions}}.dump(1) + "\n";
  if (text == status_text_) return;
  status_text_ = std::move(text);
  writing_status_ = true;
  out_.push_back(WritePoolStatus{status_text_});
}

void PilotPool::On(const PoolStatusWritten& event) {
  writing_status_ = false;
  if (!event.status.ok()) status_text_.clear();  // once more with the next look
  Problem("writing the pilots' status", event.status);
}

}  // namespace muster
