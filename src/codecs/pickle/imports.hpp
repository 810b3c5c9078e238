#pragma once

#include <string_view>

namespace tenfold::codecs {

/// True if Python's unpickler, made to read the pickles that `bytes` begin with one after the
/// other, might come to import something. Looks at nothing but where opcodes begin and how many
/// values are on the stack, so that it goes on wherever Python does; most bytes that are no pickle
/// end after an opcode or two.
bool may_import(std::string_view bytes);

}  // namespace tenfold::codecs
