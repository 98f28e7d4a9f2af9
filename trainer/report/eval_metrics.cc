#include "trainer/report/eval_metrics.h"

#include <cstdio>

#include "common/base/json.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string EvalJson(const EvalMetrics& m) {
  const bool any = m.history.best_step >= 0;
  const Json json = {{"step", m.step},
                     {"loss", m.loss},
                     {"perplexity", m.perplexity},
                     {"accuracy", m.accuracy},
                     {"tokens", m.tokens},
                     {"seconds", m.seconds},
                     {"best_step", any ? Json(m.history.best_step) : Json()},
                     {"best_loss", any ? Json(m.history.best_loss) : Json()},
                     {"without_better", m.history.without_better},
                     {"generation", m.generation},
                     {"world_size", m.world_size}};
  return json.dump();
}

std::string EvalLine(const EvalMetrics& m) {
  const int digits = static_cast<int>(std::to_string(m.max_steps).size());
  char best[80] = "";
  if (m.history.best_step == m.step) {
    std::snprintf(best, sizeof best, "  the best so far");
  } else if (m.history.best_step >= 0) {
    std::snprintf(best, sizeof best, "  best %.4f of step %lld", m.history.best_loss,
                  static_cast<long long>(m.history.best_step));
  }
  char text[240];
  std::snprintf(text, sizeof text,
                "eval %*lld/%lld  loss %8.4f  perplexity %8.3f  accuracy %5.1f %%  %.1f s%s",
                digits, static_cast<long long>(m.step), static_cast<long long>(m.max_steps), m.loss,
                m.perplexity, 100 * m.accuracy, m.seconds, best);
  return text;
}

std::string SampleJson(const GeneratedSample& s) {
  const Json json = {{"step", s.step},     {"prompt", s.prompt}, {"text", s.text},
                     {"tokens", s.tokens}, {"ended", s.ended},   {"generation", s.generation}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace muster
