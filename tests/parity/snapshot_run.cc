#include "tests/parity/snapshot_run.h"

#include <ATen/Parallel.h>
#include <fcntl.h>

#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/testing/temp_dir.h"
#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/fsdp/state_plan.h"
#include "trainer/model/stored_model.h"
#include "trainer/model/testing/late_copies_testing.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/state/snapshot/restore.h"

namespace muster::parity {
namespace {

// Shows a test what is about to run.
class WatchedOps : public ForwardingOps {
 public:
  WatchedOps(DeviceOps& to, std::function<void(const AnyOperator&)> watch)
      : ForwardingOps(to), watch_(std::move(watch)) {}
  void RunKernel(const AnyOperator& op) override {
    watch_(op);
    ForwardingOps::RunKernel(op);
  }

 private:
  const std::function<void(const AnyOperator&)> watch_;
};

// One rank's generation, as the training loop goes through it.
class Rank {
 public:
  Rank(InProcessGroup& group, int rank, const SnapshotOptions& options, HeldSegments held)
      : rank_(rank),
        options_(options),
        config_(TestConfig(options.gang.model)),
        host_ops_(MakeCpuOps()),
        late_copies_(*host_ops_),
        ops_(options.gang.apart_from_host ? static_cast<DeviceOps&>(late_copies_) : *host_ops_,
             [this](const AnyOperator& op) {
               if (options_.before_operator) options_.before_operator(rank_, op);
             }),
        communicator_(group.Join(rank)) {
    result_.held = std::move(held);
  }

  SnapshotRank Run() {
    at::set_num_threads(1);  // ranks share the cores
    result_.status = Train();
    return std::move(result_);
  }

 private:
  const GangOptions& gang() const { return options_.gang; }

  Status Train() {
    MUSTER_RETURN_IF_ERROR(communicator_->Form(
        {.generation = options_.generation, .rank = rank_, .world_size = gang().world_size},
        Deadline::After(std::chrono::seconds(60))));
    FsdpOptions engine_options = EngineOptions(gang());
    MUSTER_ASSIGN_OR_RETURN(const SegmentSpec plan,
                            PlanSegment("own", config_, engine_options,
                                        {.rank = rank_, .world_size = gang().world_size}));
    MUSTER_ASSIGN_OR_RETURN(cut_, AgreeOnCut(*communicator_, Readable()));
    MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<Segment> own, OwnSegment(plan));
    engine_options.segment = own.get();
    engine_options.snapshot_every = options_.every;
    MUSTER_ASSIGN_OR_RETURN(
        const std::unique_ptr<FsdpEngine> engine,
        FsdpEngine::Create(config_, *communicator_, ops_, std::move(engine_options)));
    MUSTER_RETURN_IF_ERROR(LoadState(*own, *engine));
    BuddyOptions buddy_options = options_.buddy;
    buddy_options.generation = options_.generation;
    if (cut_) buddy_options.from = cut_->state;
    MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<Buddy> buddy,
                            Buddy::Create(*communicator_, *own, buddy_options, &result_.held));
    engine->SetBuddy(buddy.get());
    Status status = Steps(*engine);
    engine->WaitForUpdate();
    result_.sealed = engine->SealedStep();
    result_.cursor = cursor_;
    result_.arrays = TakenFrom(*engine);
    result_.held.insert(result_.held.begin(), std::move(own));
    if (buddy != nullptr) MUSTER_RETURN_IF_ERROR(HoldKept(*buddy));
    // Peers read this rank's memory until they are done too.
    if (status.ok()) status = communicator_->Barrier();
    return status;
  }

  std::vector<const Segment*> Readable() const {
    std::vector<const Segment*> segments;
    for (const auto& each : result_.held) segments.push_back(each.get());
    if (own_ != nullptr) segments.push_back(own_);
    return segments;
  }

  Result<std::unique_ptr<Segment>> OwnSegment(const SegmentSpec& plan) {
    for (auto each = result_.held.begin(); each != result_.held.end(); ++each) {
      if (!(*each)->writable() || !SameShard((*each)->spec(), plan)) continue;
      const bool in_place = cut_ && IsInPlace(**each, plan, *cut_);
      // One that is empty will do as well as a new one.
      if (!in_place && (*each)->NewestStep() >= 0) continue;
      std::unique_ptr<Segment> own = std::move(*each);
      result_.held.erase(each);
      result_.in_place = in_place;
      if (in_place) {
        own->Continue(options_.generation, cut_->state);
      } else {
        own->Begin(options_.generation);
      }
      own_ = own.get();
      return own;
    }
    Result<std::unique_ptr<Segment>> made = Segment::Create(plan, options_.generation);
    if (made.ok()) own_ = made->get();
    return made;
  }

  Status LoadState(const Segment& own, FsdpEngine& engine) {
    if (gang().model.lora) {
      MUSTER_ASSIGN_OR_RETURN(const SafetensorsModel model,
                              OpenModelWeights(config_, gang().model_dir));
      MUSTER_RETURN_IF_ERROR(engine.LoadFrozen(&model, {}));
    }
    if (!cut_) {
      LoadRandomWeights(options_.gang.model, engine);
    } else {
      const ShardState& state = engine.state();
      MUSTER_ASSIGN_OR_RETURN(
          const RestoreOutcome outcome,
          RestoreCut(*communicator_, *cut_, Readable(), state.CheckpointArrays(),
                     {.in_place = result_.in_place && state.in_segment(),
                      .memory = state.array_memory()}));
      cursor_ = outcome.cursor;
      result_.resumed = cursor_.step;
      MUSTER_CHECK(own.NewestStep() < 0 || own.NewestStep() == cursor_.step, "a label too many");
      engine.RestoreLossScale({cursor_.loss_scale, cursor_.loss_scale_steps});
    }
    if (!cut_ && gang().loss_scale > 0) engine.RestoreLossScale({.scale = gang().loss_scale});
    engine.WeightsLoaded();
    return OkStatus();
  }

  // As a guardian does, to which the descriptor is given.
  Status HoldKept(const Buddy& buddy) {
    const auto access = buddy.copies() ? Segment::Access::kReadWrite : Segment::Access::kReadOnly;
    MUSTER_ASSIGN_OR_RETURN(
        std::unique_ptr<Segment> kept,
        Segment::Map(UniqueFd(::fcntl(buddy.kept().fd(), F_DUPFD_CLOEXEC, 0)), access));
    result_.held.push_back(std::move(kept));
    return OkStatus();
  }

  Status Steps(FsdpEngine& engine) {
    engine.Seal(cursor_);
    while (cursor_.step < options_.until) {
      MUSTER_ASSIGN_OR_RETURN(
          const StepNumbers numbers,
          RunMicroBatches(engine, gang(), rank_, static_cast<int>(cursor_.step)));
      if (!options_.leaves_out || !options_.leaves_out(cursor_.step + 1)) {
        engine.OptimizerStep(cursor_.optimizer_steps + 1, kLr);
        if (!numbers.overflow) cursor_.optimizer_steps += 1;
      }
      cursor_.step += 1;
      cursor_.samples += 3;
      cursor_.loss_scale = engine.loss_scale().scale;
      cursor_.loss_scale_steps = engine.loss_scale().finite_steps;
      engine.Seal(cursor_);
      if (options_.after_seal) options_.after_seal(rank_, cursor_.step, engine);
    }
    return OkStatus();
  }

  const int rank_;
  const SnapshotOptions& options_;
  const ModelConfig config_;
  const std::unique_ptr<DeviceOps> host_ops_;
  LateCopies late_copies_;
  WatchedOps ops_;
  const std::unique_ptr<Communicator> communicator_;
  std::optional<Cut> cut_;
  const Segment* own_ = nullptr;
  TrainCursor cursor_;
  SnapshotRank result_;
};

}  // namespace

std::vector<SnapshotRank> RunWithSnapshots(const SnapshotOptions& given,
                                           std::vector<HeldSegments> held) {
  SnapshotOptions options = given;
  TempDirForTest directory;
  if (options.gang.model.lora) {
    if (options.gang.model_dir.empty()) options.gang.model_dir = directory.path();
    WriteModel(options.gang.model, options.gang.model_dir);
  }
  const int world = options.gang.world_size;
  held.resize(world);
  InProcessGroup group(world, options.gang.shares_memory ? InProcessTransport::kSharedMemory
                                                         : InProcessTransport::kRing);
  std::vector<SnapshotRank> results(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back(
        [&, rank] { results[rank] = Rank(group, rank, options, std::move(held[rank])).Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::unique_ptr<Segment> MakeOwnSegment(const GangOptions& options, int rank, Generation lineage) {
  auto plan = PlanSegment("own", TestConfig(options.model), EngineOptions(options),
                          {.rank = rank, .world_size = options.world_size});
  MUSTER_CHECK(plan.ok(), plan.status().ToString());
  auto segment = Segment::Create(*std::move(plan), lineage, /*touch=*/false);
  MUSTER_CHECK(segment.ok(), segment.status().ToString());
  return *std::move(segment);
}

}  // namespace muster::parity
