// Packets between worker, guardian and rank, and the records that guardians leave. A rank is a
// program of its job's owner.
#include <string>

#include "tests/fuzz/fuzz.h"
#include "worker/agent/trainer_report.h"
#include "worker/guardian/protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace muster;
  const std::string_view packet = fuzz::TextOf(data, size);
  const Result<GuardianCommand> command = DecodeGuardianCommand(packet);
  if (command.ok())
    fuzz::RequireSame(DecodeGuardianCommand(Encode(*command)), *command, "a command is the same");
  const Result<GuardianEvent> event = DecodeGuardianEvent(packet);
  if (event.ok())
    fuzz::RequireSame(DecodeGuardianEvent(Encode(*event)), *event, "an event is the same");
  const Result<GuardianRankExited> record = DecodeExitRecord(packet);
  if (record.ok())
    fuzz::RequireSame(DecodeExitRecord(EncodeExitRecord(*record)), *record, "a record is the same");
  (void)worker::ParseTrainerReport(JobId{"0123456789"}, 1, 0, std::string(packet));
  return 0;
}
