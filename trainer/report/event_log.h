// EventLog: <output>/tensorboard/, a run's curves as TensorBoard reads them.
//
// Every opening makes a file of its own with its first event, and says in it from which step on the
// run goes on, so that readers drop what an earlier attempt said of steps that are done again.
// Readers take files by their names' order: each name is behind those that are there, whatever the
// clock of this host says. Each event is one write; metrics.jsonl is what counts.
//
// Owned by RunLogs; its thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "trainer/formats/event_record.h"

namespace muster {

class EventLog {
 public:
  EventLog(std::string directory, Generation generation)
      : directory_(std::move(directory)), generation_(generation) {}

  // Appends a finished step, which is the first that this log has entries of, or a later one.
  Status AppendStep(Step step, const std::vector<EventScalar>& scalars);
  // Appends what was found after a step.
  Status AppendScalars(Step after, const std::vector<EventScalar>& scalars);
  Status AppendText(Step after, const std::string& tag, const std::string& text);

 private:
  // `next`: the first step that this attempt finishes, where nothing was written yet.
  Status Append(Step next, const std::string& event);
  Status Begin(Step next);
  Status Write(const std::string& records);

  const std::string directory_;
  const Generation generation_;
  std::string path_;
  UniqueFd fd_;  // invalid: not begun
};

// "events.out.tfevents.<seconds>.<generation>.<host>": the seconds are `unix_seconds`, or one more
// than those of the latest file in `names`.
std::string EventFileName(const std::vector<std::string>& names, std::int64_t unix_seconds,
                          Generation generation, const std::string& host);

// What the samples of a prompt are filed under: its beginning in whole characters. A tag that is no
// UTF-8 would keep TensorBoard from reading anything of the directory.
std::string SampleTag(const std::string& prompt);

}  // namespace muster
