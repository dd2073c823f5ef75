package broker

const oldCreat = -1
