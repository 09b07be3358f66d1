raise RuntimeError("this pack is broken")
