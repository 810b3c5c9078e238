#pragma once

#include <cstdint>
#include <optional>

#include <tenfold/value.hpp>

#include "formats/torch_file/pickle.hpp"

namespace tenfold {

/// The special value that a call stands for: bytes, bytearray, complex, torch.Size, torch.device, a
/// layout; nothing for another call.
std::optional<Value::Special> torch_file_special(const TorchPickle& pickle, std::uint32_t id,
                                                 const TorchPickle::Call& call);

/// True for builtins.<name>, in Python 3's or Python 2's spelling.
bool is_builtin(const TorchPickle::Call& call, std::string_view name);

/// The class that a defaultdict calls for what it lacks is left out: it must be a harmless one.
/// Throws Error(unsupported) otherwise.
void check_torch_file_factory(const TorchPickle& pickle, std::uint32_t id);

}  // namespace tenfold
