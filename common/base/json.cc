#include "common/base/json.h"

template class nlohmann::detail::serializer<nlohmann::json>;
template class nlohmann::detail::serializer<nlohmann::ordered_json>;
template class nlohmann::detail::lexer<nlohmann::json, muster::JsonStringInput>;
template class nlohmann::detail::lexer<nlohmann::json, muster::JsonViewInput>;
template class nlohmann::detail::parser<nlohmann::json, muster::JsonStringInput>;
template class nlohmann::detail::parser<nlohmann::json, muster::JsonViewInput>;
template class nlohmann::detail::parser<nlohmann::ordered_json, muster::JsonStringInput>;
template std::string nlohmann::json::dump(int, char, bool, nlohmann::detail::error_handler_t) const;
template std::string nlohmann::ordered_json::dump(int, char, bool,
                                                  nlohmann::detail::error_handler_t) const;
template nlohmann::json::basic_json(
    std::initializer_list<nlohmann::detail::json_ref<nlohmann::json>>, bool,
    nlohmann::detail::value_t);
template nlohmann::ordered_json::basic_json(
    std::initializer_list<nlohmann::detail::json_ref<nlohmann::ordered_json>>, bool,
    nlohmann::detail::value_t);
template nlohmann::json::basic_json(const nlohmann::json&);
template nlohmann::ordered_json::basic_json(const nlohmann::ordered_json&);
template nlohmann::json& nlohmann::json::operator[](std::string);
template void nlohmann::json::json_value::destroy(nlohmann::detail::value_t);
template void nlohmann::ordered_json::json_value::destroy(nlohmann::detail::value_t);
