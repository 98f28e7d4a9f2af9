#include "coordinator/pilots/pilot_runner.h"

#include <unistd.h>

#include <utility>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/telemetry/log.h"

namespace muster {
namespace {

std::int64_t UnixMillis() { return SystemClock().UnixMillis(); }

PoolLooked PollResult(PilotFiles& files, const LookAtPool& asked, const std::string& config_file) {
  PoolLooked look;
  look.config = ReadFile(config_file, 1 << 20);
  if (!asked.open.empty()) look.opened = files.Open(asked.open);
  if (asked.load && look.opened.ok()) look.loaded = files.Load();
  if (asked.renew) look.renewed = files.Renew(UnixMillis());
  for (const std::string& key : asked.waiting)
    if (files.HasStarted(key)) look.started.insert(key);
  if (asked.list) look.jobs = files.List();
  return look;
}

}  // namespace

PilotRunner::PilotRunner(EventLoop& loop, PilotRunnerOptions options, PilotHooks hooks)
    : loop_(loop),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      decider_({.dir = options_.dir,
                .config_file = options_.config_file,
                .coordinator = options_.coordinator,
                .join_address = options_.join_address,
                .has_authority = !options_.security_dir.empty(),
                .process = std::to_string(::getpid()),
                .list_every = options_.list_every,
                .list_soon = options_.list_soon}),
      files_(slurm::SlurmCommands(options_.environment), options_.user, options_.security_dir),
      timer_(loop) {}

PilotRunner::~PilotRunner() { *alive_ = false; }

void PilotRunner::Start() { Handle(PoolLookDue{}); }

void PilotRunner::Handle(const PoolEvent& event) {
  const Now now{SystemClock().Now(), UnixMillis()};
  for (const PoolEffect& effect : decider_.Handle(event, now))
    std::visit([this](const auto& one) { Do(one); }, effect);
}

void PilotRunner::OnPool(std::function<PoolEvent(PilotFiles&)> work) {
  const bool taken = pool_.TrySubmit([this, work = std::move(work), alive = alive_] {
    loop_.Post([this, event = work(files_), alive] {
      if (*alive) Handle(event);
    });
  });
  MUSTER_CHECK(taken, "more is under way for pilots than PilotPool allows");
}

void PilotRunner::Do(const LookAtPool& asked) {
  const bool taken = pool_.TrySubmit([this, asked, alive = alive_] {
    loop_.Post([this, look = PollResult(files_, asked, options_.config_file), alive]() mutable {
      if (!*alive) return;
      if (decider_.NeedsFacts()) look.facts = hooks_.facts();
      Handle(std::move(look));
      timer_.Start(options_.look_every, [this] { Handle(PoolLookDue{}); });
    });
  });
  MUSTER_CHECK(taken, "more is under way for pilots than PilotPool allows");
}

void PilotRunner::Do(const SubmitPilotJob& submit) {
  OnPool([submit](PilotFiles& files) {
    return PilotSubmitted{submit.record.key,
                          files.Submit(submit.record, submit.config, submit.coordinator)};
  });
}

void PilotRunner::Do(const CancelPilotJob& cancel) {
  OnPool([record = cancel.record](PilotFiles& files) {
    return PilotCancelled{record.key, files.Cancel(record)};
  });
}

void PilotRunner::Do(const GivePilotToken& give) {
  OnPool([give](PilotFiles& files) {
    return PilotTokenGiven{give.key, give.node,
                           files.GiveToken(give.key, give.node, give.join_address, UnixMillis())};
  });
}

void PilotRunner::Do(const PutPilotAway& put) {
  OnPool([put](PilotFiles& files) {
    return PilotPutAway{put.record.key, files.End(put.record, put.nodes, UnixMillis())};
  });
}

void PilotRunner::Do(const CancelStrayJob& cancel) {
  OnPool([id = cancel.slurm_job_id](PilotFiles& files) {
    return StrayCancelled{id, files.CancelStray(id)};
  });
}

void PilotRunner::Do(const WritePoolStatus& write) {
  OnPool([file = options_.status_file, text = write.text](PilotFiles&) {
    return PoolStatusWritten{WriteFileAtomically(file, text, 0600)};
  });
}

void PilotRunner::Do(const PoolLogLine& line) {
  switch (line.severity) {
    case Severity::kInfo: return Log().info("{}", line.text);
    case Severity::kWarning: return Log().warn("{}", line.text);
    case Severity::kError: return Log().error("{}", line.text);
  }
}

}  // namespace muster
