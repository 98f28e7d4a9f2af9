// nlohmann::json for the whole project: what nearly every user of it needs is compiled once, in
// json.cc, and not in each source that includes this.
//
// No types of its own; see the library's documentation.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace muster {

// What json::parse reads from.
using JsonStringInput =
    decltype(nlohmann::detail::input_adapter(std::declval<const std::string&>()));
using JsonViewInput =
    decltype(nlohmann::detail::input_adapter(std::declval<const std::string_view&>()));

}  // namespace muster

extern template class nlohmann::detail::serializer<nlohmann::json>;
extern template class nlohmann::detail::serializer<nlohmann::ordered_json>;
extern template class nlohmann::detail::lexer<nlohmann::json, muster::JsonStringInput>;
extern template class nlohmann::detail::lexer<nlohmann::json, muster::JsonViewInput>;
extern template class nlohmann::detail::parser<nlohmann::json, muster::JsonStringInput>;
extern template class nlohmann::detail::parser<nlohmann::json, muster::JsonViewInput>;
extern template class nlohmann::detail::parser<nlohmann::ordered_json, muster::JsonStringInput>;
extern template std::string nlohmann::json::dump(int, char, bool,
                                                 nlohmann::detail::error_handler_t) const;
extern template std::string nlohmann::ordered_json::dump(int, char, bool,
                                                         nlohmann::detail::error_handler_t) const;
extern template nlohmann::json::basic_json(
    std::initializer_list<nlohmann::detail::json_ref<nlohmann::json>>, bool,
    nlohmann::detail::value_t);
extern template nlohmann::ordered_json::basic_json(
    std::initializer_list<nlohmann::detail::json_ref<nlohmann::ordered_json>>, bool,
    nlohmann::detail::value_t);
extern template nlohmann::json::basic_json(const nlohmann::json&);
extern template nlohmann::ordered_json::basic_json(const nlohmann::ordered_json&);
extern template nlohmann::json& nlohmann::json::operator[](std::string);
extern template void nlohmann::json::json_value::destroy(nlohmann::detail::value_t);
extern template void nlohmann::ordered_json::json_value::destroy(nlohmann::detail::value_t);
