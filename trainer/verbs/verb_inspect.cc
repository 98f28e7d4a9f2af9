#include <cstdio>

#include "common/control_pipe/trainer_protocol.h"
#include "trainer/verbs/inspection.h"
#include "trainer/verbs/verbs.h"

namespace muster {

int RunInspect(const InspectOptions& options) {
  const auto json =
      InspectPath(options.path, {.verify = options.verify, .tensors = options.tensors});
  if (!json.ok()) {
    std::fprintf(stderr, "muster-trainer inspect: %s\n", json.status().message().c_str());
    return kExitBadInput;
  }
  const std::string text = options.output == "json" ? json->dump(2) + "\n" : InspectionText(*json);
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace muster
