// Of RunPlan: what is printed of it.
#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "common/base/json.h"
#include "trainer/plan/run_plan.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGB = 1e9;

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  char text[300];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

double GB(std::int64_t bytes) { return static_cast<double>(bytes) / kGB; }

std::string Header(const PlanQuestion& question, const RunPlan& plan) {
  const ResourceSpec& resources = question.job.resources;
  std::string text = Format("%.2f B parameters, %d %s on %d %s of %d, %s\n",
                            static_cast<double>(plan.parameters) / 1e9, question.job.world_size(),
                            question.job.world_size() == 1 ? "rank" : "ranks", resources.nodes,
                            resources.nodes == 1 ? "node" : "nodes", resources.ranks_per_node,
                            question.hardware.name.c_str());
  if (plan.adapter_parameters > 0)
    text += Format("%.2f M parameters of adapters are trained, these are frozen\n",
                   static_cast<double>(plan.adapter_parameters) / 1e6);
  return text;
}

// One line per part, of one rank.
std::string MemoryTable(const RunPlan& plan, bool on_host) {
  std::size_t widest = 18;
  for (const MemoryPart& part : plan.memory.parts) widest = std::max(widest, part.name.size());
  const auto row = [&](const std::string& name, std::int64_t device, std::int64_t host) {
    std::string text = Format("  %-*s", static_cast<int>(widest), name.c_str());
    if (!on_host) text += Format("%8.2f", GB(device));
    return text + Format("  %8.2f GB\n", GB(host));
  };
  const int column = static_cast<int>(widest) + 2;
  std::string text = Format("\n%-*s", column, "per rank");
  text += on_host ? "    memory\n" : "  device      host\n";
  std::vector<std::string> shown;
  for (const MemoryPart& first : plan.memory.parts) {
    if (std::ranges::find(shown, first.name) != shown.end()) continue;
    shown.push_back(first.name);
    std::int64_t device = 0, host = 0;
    for (const MemoryPart& part : plan.memory.parts) {
      if (part.name != first.name) continue;
      device += part.device;
      host += part.host;
    }
    text += row(first.name, device, host);
  }
  return text + row("all", plan.memory.device_bytes, plan.memory.host_bytes);
}

std::string Verdict(const PlanQuestion& question, const RunPlan& plan) {
  const Hardware& hardware = question.hardware;
  std::string text = "\n";
  if (!hardware.is_host)
    text += Format("device: %.1f of %.1f GB: %s\n", GB(plan.memory.device_bytes),
                   hardware.memory_bytes / kGB, plan.device_fits ? "fits" : "does not fit");
  text += Format("host:   %.1f GB on each node", GB(plan.memory.node_host_bytes));
  if (hardware.host_memory_bytes > 0)
    text += Format(" of %.1f GB: %s", hardware.host_memory_bytes / kGB,
                   plan.host_fits ? "fits" : "does not fit");
  text += "\n";
  if (plan.fits()) return text;
  if (plan.suggestions.empty()) return text + "\nno change that is known here would make it fit\n";
  text += "\nit would fit with\n";
  for (const Suggestion& each : plan.suggestions)
    text += "  " + each.change +
            Format("  (%.1f GB, %.2f times the time)\n", GB(each.device_bytes), each.hours_factor);
  return text;
}

std::string TimeLines(const PlanQuestion& question, const RunPlan& plan) {
  const TimePlan& time = plan.time;
  const Traffic& traffic = time.traffic;
  std::string text = Format(
      "\na step: %lld tokens, %.3g s = %.3g s of products + %.3g s of waiting for other ranks + "
      "%.3g s of updates\n",
      static_cast<long long>(time.tokens), time.step_seconds, time.compute_seconds,
      time.exposed_seconds, time.optimizer_seconds);
  const double inside = traffic.inside_gathered + traffic.inside_reduced;
  const double between = traffic.between_gathered + traffic.between_reduced;
  text += Format("  inside a node: %.2f GB gathered, %.2f GB reduced per rank\n",
                 traffic.inside_gathered / kGB, traffic.inside_reduced / kGB);
  text += Format("  between nodes: %.2f GB gathered, %.2f GB reduced per node\n",
                 traffic.between_gathered / kGB, traffic.between_reduced / kGB);
  if (traffic.host > 0) text += Format("  to and from the host: %.2f GB\n", traffic.host / kGB);
  if (inside + between + traffic.host > 0)
    text += Format("  hidden under the products from %lld tokens per rank and micro-batch on\n",
                   static_cast<long long>(time.hiding_tokens));
  text += Format("speed: %.0f tokens/s, %.0f per device, MFU %.1f %% of %.3g TFLOP/s (%s)\n",
                 time.tokens_per_second, time.tokens_per_second / question.job.world_size(),
                 100 * time.mfu, question.hardware.peak_tflops, question.hardware.source.c_str());
  if (time.hours)
    text += Format("run: %lld steps, %.2f hours", static_cast<long long>(*time.steps), *time.hours);
  if (plan.cost) text += Format(", cost %.2f", *plan.cost);
  return text + (time.hours ? "\n" : "run: give --rows for the hours of so many epochs\n");
}

Json TrafficJson(const Traffic& traffic) {
  return {{"inside_node_gathered_bytes", traffic.inside_gathered},
          {"inside_node_reduced_bytes", traffic.inside_reduced},
          {"between_nodes_gathered_bytes", traffic.between_gathered},
          {"between_nodes_reduced_bytes", traffic.between_reduced},
          {"host_bytes", traffic.host}};
}

Json MemoryJson(const MemoryPlan& memory) {
  Json parts = Json::object();
  for (const MemoryPart& part : memory.parts) {
    // "peers' slots": peers_slots
    std::string key = part.name;
    std::erase(key, '\'');
    std::ranges::replace(key, ' ', '_');
    Json& json = parts[key];
    if (json.is_null()) json = {{"device_bytes", 0}, {"host_bytes", 0}, {"shared", false}};
    json["device_bytes"] = json["device_bytes"].get<std::int64_t>() + part.device;
    json["host_bytes"] = json["host_bytes"].get<std::int64_t>() + part.host;
    json["shared"] = part.shared || json["shared"].get<bool>();
  }
  return {{"parts", parts},
          {"device_bytes", memory.device_bytes},
          {"host_bytes", memory.host_bytes},
          {"node_host_bytes", memory.node_host_bytes}};
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

std::string PlanText(const PlanQuestion& question, const RunPlan& plan) {
  return Header(question, plan) + MemoryTable(plan, question.job.on_host()) +
         Verdict(question, plan) + TimeLines(question, plan);
}

std::string PlanJson(const PlanQuestion& question, const RunPlan& plan) {
  const TimePlan& time = plan.time;
  Json suggestions = Json::array();
  for (const Suggestion& each : plan.suggestions)
    suggestions.push_back({{"change", each.change},
                           {"bytes", each.device_bytes},
                           {"time_factor", each.hours_factor}});
  const Json json = {
      {"fits", plan.fits()},
      {"parameters", plan.parameters},
      {"adapter_parameters", plan.adapter_parameters},
      {"world_size", question.job.world_size()},
      {"device", question.hardware.name},
      {"device_memory_bytes", question.hardware.memory_bytes},
      {"memory", MemoryJson(plan.memory)},
      {"step",
       {{"tokens", time.tokens},
        {"seconds", time.step_seconds},
        {"compute_seconds", time.compute_seconds},
        {"communication_seconds", time.communication_seconds},
        {"exposed_seconds", time.exposed_seconds},
        {"optimizer_seconds", time.optimizer_seconds},
        {"hiding_tokens", time.hiding_tokens},
        {"traffic", TrafficJson(time.traffic)}}},
      {"tokens_per_second", time.tokens_per_second},
      {"mfu", time.mfu},
      {"peak_tflops", question.hardware.peak_tflops},
      {"steps", OrNull(time.steps)},
      {"hours", OrNull(time.hours)},
      {"cost", OrNull(plan.cost)},
      {"suggestions", suggestions},
  };
  return json.dump(2);
}

}  // namespace muster
