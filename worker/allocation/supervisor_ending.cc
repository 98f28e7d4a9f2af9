#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <variant>

#include "worker/allocation/allocation_security.h"
#include "worker/allocation/node_directory.h"
#include "worker/allocation/supervisor_loop.h"

namespace muster::worker {
namespace {

using std::chrono::seconds;

constexpr seconds kDecisionLimit{3};  // for the shared directory to accept it
constexpr seconds kProgramsLimit{3};
constexpr seconds kGuardiansLimit{2};
constexpr seconds kFinishLimit{10};

}  // namespace

// Only silence suggests that there is no leader. Slurm knows which nodes are still in the
// allocation, and the shared directory whether one leads there.
void SupervisorLoop::Do(const GiveUp&) {
  if (std::exchange(giving_up_, true)) return;
  const Ending ending = duties_.monitor().Limited(
      {.exit_code = kExitRequeue,
       .action = EndAction::kRequeue,
       .reason =
           "no node of this allocation can run a coordinator; the logs are in " + shared_.Logs(),
       .exclude = {}});
  struct Found {
    bool readable = false;
    std::optional<LeaderRecord> leader;
    Result<AllocationState> state = Unavailable("not asked");
  };
  OnPool(
      commands_,
      [this] {
        return Found{ReadOwner(shared_.dir()).has_value(), shared_.ReadLeadership(),
                     scheduler_->Ask()};
      },
      [this, ending](const Found& found) {
        giving_up_ = false;
        if (ending_.ending() || exit_code_ || !found.readable || !found.state.ok()) return;
        const bool another =
            found.leader && found.leader->leadership.epoch > election_.leadership().epoch;
        if (another) return;  // the next reading follows it
        const ClosingStep step = DecideClosing(*found.state, Order(ending, true));
        if (step == ClosingStep::kWait) return;
        if (step == ClosingStep::kLeftOut)
          return LeaveOut("the allocation goes on without this node");
        stands_in_ = true;
        Propose(ending);
      });
}

// An end that this supervisor has decided. It counts once it is noted where all can see it, unless
// another one leads by now.
void SupervisorLoop::Propose(const Ending& ending) {
  if (std::exchange(proposing_, true)) return;
  // If the directory does not answer, time may run out.
  decision_timer_.Start(kDecisionLimit, [this, ending] { Decide(ending, self_.index); });
  OnPool(
      files_,
      [this, ending, epoch = election_.leadership().epoch,
       progress = duties_.monitor().ProgressAfter(ending)] {
        const auto found = shared_.ReadLeadership();
        if (shared_.IsSuperseded() || (found && found->leadership.epoch > epoch)) return false;
        const Status counted = shared_.WriteProgress(progress);
        if (!counted.ok()) Log().warn("the next run will not know: {}", counted.message());
        const Status status = shared_.WriteOutcome({ending, false});
        if (!status.ok()) Log().error("how this ends could not be noted: {}", status.message());
        return true;
      },
      [this, ending](bool counts) {
        proposing_ = false;
        decision_timer_.Cancel();
        if (counts) return Decide(ending, self_.index);
        Log().warn("another node leads by now; not {}", ending.reason);
        stands_in_ = false;
        duties_.Forget();
      });
}

void SupervisorLoop::Decide(const Ending& ending, int closer) {
  if (ending_.ending() || exit_code_) return;
  Log().info("leaving with exit code {}: {}", ending.exit_code, ending.reason);
  const TimePoint now = SystemClock().Now();
  order_ = Order(ending, stands_in_);
  std::set<int> others;
  for (const auto& [index, member] : election_.members())
    if (index != self_.index && election_.Alive(index, now)) others.insert(index);
  ending_.Decide(ending, closer, others, now);
}

ClosingOrder SupervisorLoop::Order(const Ending& ending, bool stand_in) const {
  ClosingOrder order{.ending = ending,
                     .run = options_.run,
                     .node = self_.node,
                     .stand_in = stand_in,
                     .below = {},
                     .missing = MissingNodes(),
                     .silent = {}};
  for (int index = 0; index < static_cast<int>(options_.node_names.size()); ++index) {
    const std::string& node = options_.node_names[static_cast<std::size_t>(index)];
    if (election_.Refuses(index)) continue;
    if (index < self_.index) order.below.push_back(node);
    if (std::find(order.missing.begin(), order.missing.end(), node) != order.missing.end())
      order.silent.push_back(node);
  }
  return order;
}

void SupervisorLoop::LeaveOut(const std::string& why) {
  if (exit_code_) return;
  Log().warn("leaving: {}", why);
  exit_code_ = kExitLeftOut;
  Do(EndPrograms{});
}

void SupervisorLoop::Do(const EndPrograms&) {
  if (programs_by_) return;
  programs_by_ = SystemClock().Now() + kProgramsLimit;
  start_wanted_ = false;
  programs_->End();
}

void SupervisorLoop::Do(const AskCloser& ask) {
  const auto heard = [this, index = ask.index](bool answered, bool refused) {
    if (answered) {
      gone_since_.erase(index);
      return ending_.OnAnswer(index);
    }
    gone_since_[index] = refused;
    ending_.OnSilence(index, refused, SystemClock().Now());
  };
  const auto member = election_.members().find(ask.index);
  if (member == election_.members().end()) return heard(false, true);
  peers_->Ask(member->second.address, View(), kQuestionLimit,
              [heard](const Result<PeerView>& answer) {
                heard(answer.ok(), answer.status().code() == StatusCode::kUnavailable);
              });
}

void SupervisorLoop::Do(const ReadNote&) {
  OnPool(
      files_,
      [this] {
        const auto outcome = shared_.ReadOutcome();
        return outcome && outcome->closed;
      },
      [this](bool closed) { ending_.OnNote(closed, SystemClock().Now()); });
}

void SupervisorLoop::Do(const NotifyScheduler&) {
  ClosingOrder order = order_;
  for (const auto& [index, refused] : gone_since_) {
    const auto member = election_.members().find(index);
    if (member == election_.members().end()) continue;
    order.missing.push_back(member->second.node);
    if (!refused) order.silent.push_back(member->second.node);
  }
  OnPool(
      commands_,
      [this, order] {
        const ClosingResult result = CloseAllocation(*scheduler_, order);
        if (result.closing != Closing::kDone) return result;
        const Status noted = shared_.WriteOutcome({.ending = order.ending,
                                                   .closed = true,
                                                   .left_to_script = result.left_to_script,
                                                   .requeued = result.requeued});
        if (!noted.ok()) Log().error("that this is over could not be noted: {}", noted.message());
        return result;
      },
      [this](const ClosingResult& result) {
        if (!result.why.empty()) Log().warn("the allocation's end: {}", result.why);
        ending_.OnSchedulerAnswer(result.closing, SystemClock().Now());
      });
}

void SupervisorLoop::Do(const Exit& go) {
  exit_code_ = go.left_out ? kExitLeftOut : ending_.ending()->exit_code;
}

void SupervisorLoop::TickEnd() {
  const TimePoint now = SystemClock().Now();
  ending_.Tick(now);
  for (const EndingEffect& effect : ending_.TakeEffects())
    std::visit([this](const auto& e) { Do(e); }, effect);
  if (!programs_by_) return;
  if (programs_->Ended() || now >= *programs_by_) SweepNode();
  if (exit_code_ && swept_) Finish();
}

// Guardians are not its children, and may hold a job that waits. While the scheduler is retried,
// nothing of the job runs here.
void SupervisorLoop::SweepNode() {
  if (std::exchange(sweeping_, true)) return;
  programs_->Kill();
  OnPool(
      spawner_, [this] { return EndProcessesOf(options_.local_dir, kGuardiansLimit); },
      [this](int left) {
        if (left > 0) Log().error("{} processes of this node did not end", left);
        swept_ = true;
      });
}

void SupervisorLoop::Finish() {
  if (std::exchange(finishing_, true)) return;
  const auto stop = [this] {
    // gRPC watches the files of its certificate for as long as it listens.
    peers_.reset();
    // It contains keys. Logs are in the shared directory.
    std::error_code ignored;
    std::filesystem::remove_all(options_.local_dir, ignored);
    stopped_ = true;
    loop_.Stop();
  };
  finish_timer_.Start(kFinishLimit, stop);
  OnPool(
      files_,
      [this, closes = ending_.closes()] {
        if (closes) RemoveAllocationAuthority(shared_.Security());
        return programs_->CarryLogs();
      },
      [stop](const Status& status) {
        if (!status.ok()) Log().warn("a log is not in the shared directory: {}", status.message());
        stop();
      });
}

}  // namespace muster::worker
