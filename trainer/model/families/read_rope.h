// Reading of what a config.json says of rotary embeddings.
//
// Private to the families. Any thread.
#pragma once

#include <string>

#include "common/base/status.h"
#include "trainer/core/model_config.h"
#include "trainer/model/families/config_reader.h"
#include "trainer/model/families/family.h"

namespace muster {

// rope_theta, rope_scaling and partial_rotary_factor of transformers 4, rope_parameters of
// transformers 5. The shape is in `config`. Returns what is wrong within these objects; `reader`
// has the rest, and `origin` as its origin.
Status ReadRope(ConfigReader& reader, const std::string& origin, const Family& family,
                ModelConfig* config);
// One of these objects, or one within them: `origin` says where it stands, and `outer` reads what
// it stands in.
Status ReadRopeObject(const nlohmann::json& rope, const std::string& origin, ConfigReader& outer,
                      const Family& family, ModelConfig* config);

}  // namespace muster
