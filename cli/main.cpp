#include "run.hpp"

int main(int argc, char** argv) { return tenfold::cli::run(argc, argv); }
