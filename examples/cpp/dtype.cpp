// Element types by torch's names, and the narrow floating-point types.
#include <tenfold/dtype.hpp>

#include <iostream>

int main() {
  const auto dtype = tenfold::dtype_from_name("bfloat16");
  if (dtype != tenfold::dtype_of<tenfold::BFloat16>()) return 1;
  std::cout << *dtype << " has " << tenfold::itemsize(*dtype) << " bytes\n";
  const tenfold::Half third(1.0F / 3.0F);  // rounded as torch does
  std::cout << "float16: " << third << ", bits " << third.bits() << '\n';
  return tenfold::to_string(*dtype) == "bfloat16" && third.bits() == 0x3555 ? 0 : 1;
}
