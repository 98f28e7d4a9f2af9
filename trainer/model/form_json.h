// The settings of AdapterForm as JSON, one overload for each of their types. Private to
// trainer/model: it drags nlohmann-json along.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/job_spec/job_spec.h"

namespace muster {

inline nlohmann::json FormToJson(int value) { return value; }
inline nlohmann::json FormToJson(double value) { return value; }
inline nlohmann::json FormToJson(bool value) { return value; }
nlohmann::json FormToJson(LoraBias value);
nlohmann::json FormToJson(const std::vector<std::string>& value);
nlohmann::json FormToJson(const std::optional<QuantizationSpec>& value);        // null: none
nlohmann::json FormToJson(const std::optional<std::vector<TokenSpec>>& value);  // null: none

// Throw nlohmann::json::exception where a value is of another type.
inline void FormFromJson(const nlohmann::json& from, int* value) { from.get_to(*value); }
inline void FormFromJson(const nlohmann::json& from, double* value) { from.get_to(*value); }
inline void FormFromJson(const nlohmann::json& from, bool* value) { from.get_to(*value); }
void FormFromJson(const nlohmann::json& from, LoraBias* value);
void FormFromJson(const nlohmann::json& from, std::vector<std::string>* value);
void FormFromJson(const nlohmann::json& from, std::optional<QuantizationSpec>* value);
void FormFromJson(const nlohmann::json& from, std::optional<std::vector<TokenSpec>>* value);

}  // namespace muster
